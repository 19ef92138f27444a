//! Runs of the simulated world. `cargo test -p enrich-sim --features sim SUITE::` runs one suite, for example `one_fault::`.

#![cfg(feature = "sim")]

mod determinism;
mod middleware;
mod network_and_clocks;
mod one_fault;
mod random_faults;
mod several_nodes;
