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
//! - [`Listener`]: the source of connections
//! - [`swap`]: values that a configuration reload replaces
//! - [`tls`]: certificates and TLS configuration
//! - `wake`: futures that are polled only after their own wake-up
//! - [`ClientAddress`]: the client's address
//! - `activity`: the state of a connection and its timeouts
//! - `registry`: the open connections and the limits on their number
//! - `monitor`: statistics of the connections
//! - `shutdown`: the phases of a graceful shutdown
//! - `acceptor`: accepting connections
//! - `log`: one log event per lookup
//! - `handler`: one request, served by the [`Endpoint`](enrich_tower::Endpoint)
//! - `replies`: JSON replacements for hyper's own error replies
//! - `stream`: the byte stream of one connection
//! - `connection`: one connection
//! - `outbox`: the output of a thread's connections
//! - `server`: the accept loop and the graceful shutdown, [`run`]
//! - [`pages`]: a server of pages on the same connections
//! - [`workers`]: the server on several threads

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod acceptor;
mod activity;
mod client_address;
mod connection;
mod handler;
mod limits;
mod listener;
mod log;
mod monitor;
mod outbox;
pub mod pages;
mod registry;
mod replies;
mod server;
mod shutdown;
mod stream;
pub mod swap;
pub mod tls;
mod wake;
pub mod workers;

pub use enrich_tower::{Arrivals, BodyLimits, SystemArrivals};

pub use crate::client_address::{ClientAddress, client_network};
pub use crate::limits::Limits;
pub use crate::listener::Listener;
pub use crate::monitor::ConnectionMonitor;
pub use crate::registry::ConnectionStatistics;
pub use crate::server::{Services, run};
