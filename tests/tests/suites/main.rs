//! The tests of the whole service and of its stores, in one binary to link them once.
//!
//! `cargo test -p enrich-tests SUITE::` runs one suite:
//!
//! * `golden`: the wire format, byte by byte, for the host and for the gateway examples
//! * `contract`: the rules that every store must follow
//! * `redis`, `several_nodes`: Redis and PostgreSQL with failing servers and networks
//! * `models`: the simulation's fake Redis against a real one
//! * `architecture`: dependencies, imports, sizes of files
//!
//! With the feature `servers`, `contract`, `models`, `redis` and `several_nodes` start PostgreSQL and Redis.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

mod architecture;
mod contract;
mod golden;
#[cfg(feature = "servers")]
mod models;
#[cfg(feature = "servers")]
mod redis;
#[cfg(feature = "servers")]
mod several_nodes;
