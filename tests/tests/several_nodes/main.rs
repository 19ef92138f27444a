//! Several nodes on one PostgreSQL, as sentences: what they spend together, and what happens when one of them, or the server,
//! is slow, cut off, killed or back again.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

mod addresses;
mod credits;
mod faults;
mod keys;
mod leases;
mod random;
mod world;
