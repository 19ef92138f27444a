//! The program `enrich` as its users run it: commands, the server, and their behaviour under faults.
//!
//! `cargo test -p enrich SUITE::` runs one suite, for example `config::` or `bulk::`. The features `servers`
//! and `tools` add the tests that start other programs, and fail if one is not installed. Three suites
//! are binaries of their own: `many_connections` opens 10,000 connections and raises the limit on open files
//! of its process, `cluster` runs three nodes with PostgreSQL and Redis for minutes, and `browser` needs
//! Chromium.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]
#![allow(unreachable_pub, reason = "nothing in a test is public")]
#![cfg_attr(
    not(all(feature = "servers", feature = "tools")),
    allow(dead_code, unused_imports, reason = "used by tests that are not compiled")
)]

#[path = "../enrich/mod.rs"]
mod enrich;
mod admin;
mod backup;
mod bulk;
mod client;
mod client_tls;
mod commands;
mod composition;
mod config;
mod conform;
#[cfg(feature = "servers")]
mod copy;
#[cfg(feature = "servers")]
mod database;
mod deploy;
#[cfg(feature = "tools")]
mod disk_full;
mod docs;
mod failing_sync;
mod fake;
mod files;
mod log;
mod metrics;
mod mistakes;
#[cfg(feature = "servers")]
mod monitoring;
mod open_files;
#[cfg(feature = "servers")]
mod opt_outs;
mod output;
mod people;
mod permissions;
#[cfg(feature = "servers")]
mod redis;
mod reload;
mod restart;
mod shutdown;
mod transcripts;
mod vendors;
mod vendors_try;
