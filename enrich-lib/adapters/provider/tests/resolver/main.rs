//! The resolver, from an email to a profile, against vendors of all kinds.
//!
//! `world` a vendor's description, and what is told of an ask · `answers` vendors that speak HTTP well · `hostile` vendors
//! that don't · `requests` what a vendor gets · `tls` the same over HTTPS · `ready_made` the vendors that are described
//! already · `descriptions` what can't be one.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod answers;
mod descriptions;
mod hostile;
mod ready_made;
mod requests;
mod tls;
mod world;
