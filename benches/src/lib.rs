//! Benchmarks of lookups: instruction counts, and times compared with those of bare HTTP.
//!
//! # Layout
//!
//! Each module imports only modules above it:
//!
//! - `dataset`: keys, people and requests
//! - `memory`: the service with in-memory stores
//! - `bare`: HTTP without a service
//! - `pieces`: the pieces of a lookup
//! - `scripted_clients`: clients with almost no cost
//! - `load`: the load generator
//! - `machine`: CPU and memory statistics
//! - `disk`: the latency of the disk
//! - `server_kind`: the kinds of measured servers
//! - `servers`: the measured servers
//! - `workload`: the workloads whose instructions are counted
//! - `callgrind`: instruction counts
//! - `system_calls`: system call counts
//! - `baseline`: the accepted counts
//! - `table`: the results of a comparison
//! - `scale`: growth with the amount of data
//!
//! `src/bin/instructions.rs` counts instructions and system calls, `src/bin/rig` measures times.

#![forbid(unsafe_code)]

pub mod dataset;

pub mod memory;

pub mod bare;

pub mod pieces;

pub mod scripted_clients;

pub mod load;

pub mod machine;

pub mod disk;

pub mod server_kind;

pub mod servers;

pub mod workload;

pub mod callgrind;

pub mod system_calls;

pub mod baseline;

pub mod table;

pub mod scale;
