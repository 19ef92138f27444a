//! Code shared by the test suites of this crate.
//!
//! * [`contract`]: the rules that every store of this repository must follow, besides those of `enrich-contract`. To
//!   test another store, add one file to `tests/suites/contract`.
//! * [`servers`]: real PostgreSQL and Redis servers for the stores that need one.
//! * [`blackbox`]: the whole service over TCP, as its clients use it.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

pub mod blackbox;
pub mod contract;
pub mod servers;
