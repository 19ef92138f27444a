//! A gateway on [Pingora](https://github.com/cloudflare/pingora) that answers lookups itself and passes every other request
//! on to an upstream.
//!
//! # Layout
//!
//! In reading order: [`gateway`] HTTP on a Pingora session · [`lookup`] the steps of one lookup.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod gateway;

pub mod lookup;
