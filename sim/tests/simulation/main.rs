//! Runs of the simulated world. `cargo test -p enrich-sim --features sim SUITE::` runs one suite, for example
//! `faults::`.

#![cfg(feature = "sim")]

mod determinism;
mod faults;
mod gateways;
mod random;
