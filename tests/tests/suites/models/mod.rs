//! Differential tests: the simulation's fake servers against real ones.

mod postgres;
mod redis;
