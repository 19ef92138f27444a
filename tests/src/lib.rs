//! What the suites of this crate share.
//!
//! * [`contract`]: the sentences that every store keeps, whatever it stores in. A store joins with one file in
//!   `tests/`: see `tests/contract_memory.rs`.
//! * [`servers`]: the servers that stores talk to, real ones.
//! * [`blackbox`]: the whole service as its clients meet it, over TCP.
//! * [`servers`]: real servers for stores that need one.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

pub mod blackbox;
pub mod contract;
pub mod servers;
