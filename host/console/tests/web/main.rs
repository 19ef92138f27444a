//! The web application over HTTP, on SQLite. The tests follow OWASP ASVS 5.0, level 2.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed step fails the test")]

mod escaping;
mod guards;
mod headers;
mod keys;
mod links;
mod members;
mod passwords;
mod sessions;
mod sign_in;
mod site;
mod two_factor;
mod usage;
