//! The library's state machine, accounts, windows and wire format with in-memory or scripted ports.

mod account;
mod contract;
mod emails;
mod every_combination;
mod memory;
mod observer;
mod order;
mod scripted;
mod windows;
mod wire;
