//! The commands with valid and invalid arguments, with and without a running server.

mod accounts;
mod config;
pub mod console;
mod keys;
mod sample;
mod users;
mod while_serving;

pub use crate::enrich::within_a_second;
use crate::enrich::{EMAIL, Enrich, Server};
use serde_json::{Value, json};

/// Returns the status of one lookup.
pub fn status(server: &Server, key: &str, email: &str) -> u16 {
    server.connect().enrich(key, email).unwrap().status
}
