//! Several nodes on one PostgreSQL server, which may be slow, disconnected, killed or restarted, as may the nodes.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

mod addresses;
mod credits;
mod faults;
mod keys;
mod leases;
mod random;
mod world;
