//! The standalone server of the person enrichment service: a hyper server around [`enrich_lib`], for HTTP/1.1
//! and HTTP/2, with or without TLS.
//!
//! [`run`] serves the connections of a [`Listener`]: a TCP listener in production, in-memory streams or a
//! simulated network in tests.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod activity;
mod client_address;
mod connection;
mod handler;
mod limits;
mod listener;
mod log;
mod outbox;
pub mod pages;
mod registry;
mod sampler;
mod server;
mod shutdown;
mod stream;
pub mod swap;
pub mod tls;
pub mod workers;

pub use enrich_tower::{Arrivals, BodyLimits, SystemArrivals};

pub use crate::client_address::{ClientAddress, client_network};
pub use crate::limits::Limits;
pub use crate::listener::Listener;

pub use crate::registry::{ConnectionMonitor, ConnectionStatistics};
pub use crate::sampler::Sampler;
pub use crate::server::{Services, run};
