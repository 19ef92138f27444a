//! Redis and PostgreSQL for a simulated network: they speak just enough of their protocols for the adapters, over any stream, and
//! hold the same models.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod postgres;
pub mod redis;
