//! A gateway on [Pingora](https://github.com/cloudflare/pingora) that answers lookups itself, and passes everything else
//! on to an upstream.
//!
//! # Layout
//!
//! In reading order: [`gateway`] HTTP over Pingora's session · [`walk`] one lookup, by hand.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod gateway;

pub mod walk;
