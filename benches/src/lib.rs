//! Benchmarks of lookups: instruction counts, and times compared with those of bare HTTP.
//!
//! # Layout
//!
//! For `src/bin/instructions.rs`: `world` keys, people and requests · `memory` the service without a disk · `bare` HTTP
//! without a service · `pieces` the pieces of a lookup · `script` clients at no cost · `counted` the workloads ·
//! `callgrind` instruction counts · `figures` the accepted figures.
//!
//! For `src/bin/rig.rs`: `load` the load generator · `machine` CPU and memory statistics · `contender` the servers to
//! compare · `system_calls` their system calls · `table` the output · `scale` growth with the amount of data · `plot`
//! charts.

#![forbid(unsafe_code)]

pub mod world;

pub mod memory;

pub mod bare;

pub mod pieces;

pub mod script;

pub mod counted;

pub mod callgrind;

pub mod figures;

pub mod load;

pub mod machine;

pub mod contender;

pub mod table;

pub mod system_calls;

pub mod scale;

pub mod plot;
