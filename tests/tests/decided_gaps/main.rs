//! The decisions on points that the specification leaves open (listed in the README), as a client sees them.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

mod bodies;
mod burst;
mod credits;
mod emails;
mod identity;
mod order;
mod routes;

use serde_json::json;

/// Returns the request body of a lookup.
fn body(email: &str) -> String {
    json!({ "email": email }).to_string()
}
