//! Fake Redis and PostgreSQL servers for a simulated network. They support the part of the protocols that the
//! adapters use, over any stream, and store their data in Rust models of the real scripts and functions.
//! [`sql`] runs any SQL, for a gateway's own tables.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod postgres;
mod protocol;
pub mod redis;
pub mod sql;
