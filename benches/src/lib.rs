//! The side-by-side load rig.
//!
//! `load` asks a server as fast as it answers · `contender` starts the servers that are compared · `table` what is printed.
//! `src/bin/rig.rs` is the command.

#![forbid(unsafe_code)]

pub mod contender;
pub mod load;
pub mod table;
