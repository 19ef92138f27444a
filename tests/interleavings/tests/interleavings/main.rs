//! The stores in memory and the group commit of SQLite in many thread interleavings.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod admin_changes;
mod shutdown;
mod spends;
mod windows;
