//! Runs of the simulated world. `cargo test -p enrich-sim --features sim SUITE::` runs one suite, for example
//! `one_fault::`.

#![cfg(feature = "sim")]

mod connections;
mod determinism;
mod disk;
mod faults;
mod gateways;
mod middleware;
mod one_fault;
mod outcomes;
mod random;
mod several_nodes;
