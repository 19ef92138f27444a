//! Every decision on what the specification leaves open, as far as a client can see it.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

mod bodies;
mod burst;
mod credits;
mod emails;
mod identity;
mod order;
mod routes;

use serde_json::json;

/// The body of a lookup.
fn body(email: &str) -> String {
    json!({ "email": email }).to_string()
}
