//! End-to-end tests of the resolver with all kinds of vendors.
//!
//! `world` a vendor's description and the outcome of a request · `answers` vendors with valid HTTP responses
//! · `hostile` vendors without · `requests` the requests that a vendor receives · `tls` HTTPS · `built_in`
//! the built-in descriptions · `descriptions` invalid descriptions.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod answers;
mod built_in;
mod descriptions;
mod hostile;
mod requests;
mod tls;
mod world;
