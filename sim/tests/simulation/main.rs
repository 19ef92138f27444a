//! Runs of the simulated world. `cargo test -p enrich-sim --features sim SUITE::` runs one suite, for example `one_fault::`.

#![cfg(feature = "sim")]

mod determinism;
mod guards;
mod network_and_clocks;
mod one_fault;
mod random_worlds;
mod several_nodes;
