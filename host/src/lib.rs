//! The standalone server of the person enrichment service: a hyper server around [`enrich_lib`], for HTTP/1.1
//! and HTTP/2, with or without TLS.
//!
//! [`run`] serves the connections of a [`Listener`]: a TCP listener in production, in-memory streams or a
//! simulated network in tests.
//!
//! # Layout
//!
//! The modules in reading order. Each one depends only on those before it.
//!
//! - [`Limits`]: limits on connections, requests and waits
//! - [`swap`]: values that a configuration reload replaces
//! - [`tls`]: certificates and TLS configuration
//! - [`ClientAddress`]: the client's address
//! - `shutdown`: the phases of a graceful shutdown
//! - `activity`: the state of a connection
//! - `registry`: the open connections, their timeouts and the limits on their number
//! - [`Listener`]: the source of connections
//! - [`Sampler`]: a limit on the log volume that clients can cause
//! - `log`: one log event per lookup
//! - `handler`: one request, served by the [`Endpoint`](enrich_tower::Endpoint)
//! - `stream`: the byte stream of one connection, and JSON replacements for hyper's own error replies
//! - `connection`: one connection
//! - `outbox`: the output of a thread's connections
//! - `server`: the accept loop and the graceful shutdown, [`run`]
//! - [`pages`]: a server of pages on the same connections
//! - [`workers`]: the server on several threads

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
