//! Benchmarks of lookups: instruction counts, and times compared with those of bare HTTP.
//!
//! Modules are declared in reading order; each uses only those before it.
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
