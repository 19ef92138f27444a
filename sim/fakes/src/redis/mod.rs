//! A fake Redis with the subset that the adapter uses.
//!
//! Each module imports only modules before it: `counters` the stored data · `server` the data with a clock ·
//! `connection` the protocol.

mod counters;
mod server;
mod connection;

pub use counters::{Counters, Rejection, Validity};
pub use server::Redis;
