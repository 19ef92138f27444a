//! The standalone server of the person enrichment service: a hyper server around [`enrich_lib`], for HTTP/1.1 and HTTP/2,
//! with or without TLS.
//!
//! [`run`] serves the connections of a [`Listener`]: a TCP listener in production, in-memory streams or a simulated network
//! in tests.
//!
//! # Layout
//!
//! The modules in reading order. Each one depends only on those before it.
//!
//! - [`Limits`]: limits on connections, requests and waits
//! - [`Listener`]: the source of connections
//! - [`swap`]: values that can be replaced while the server runs
//! - [`tls`]: certificates and TLS configuration
//! - `wake`: secondary futures of a task
//! - `activity`: per-connection activity and timeouts
//! - `replies`: JSON bodies for hyper's own error replies
//! - `stream`: the byte stream of one connection
//! - `log`: one log event per lookup
//! - `handler`: one request, served by the [`Endpoint`] of [`enrich_tower`]
//! - `connection`: one connection
//! - [`run`]: the accept loop
//! - [`workers`]: the server on several threads

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod limits;

mod listener;

pub mod swap;

pub mod tls;

mod wake;

mod activity;

mod replies;

mod stream;

mod log;

mod handler;

mod connection;

pub mod workers;

use std::fmt;
use std::sync::Arc;

use enrich_lib::drive::Service;
use enrich_tower::Endpoint;
use rustls::ServerConfig;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use enrich_tower::{Arrivals, BodyLimits, SystemArrivals};

pub use crate::limits::Limits;
pub use crate::listener::Listener;

use crate::connection::Connections;
use crate::handler::RequestHandler;
use crate::log::Log;

/// The configuration of [`run`].
#[derive(Clone)]
pub struct Services {
    /// Runs the lookups.
    pub service: Service,
    /// The source of time and randomness.
    pub arrivals: Arc<dyn Arrivals>,
    /// Limits on resources that clients can consume.
    pub limits: Limits,
    /// The TLS configuration (see [`tls::load`]). `None` serves plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    /// Adds a `date` header to replies. Simulations disable it because it shows the machine's clock, not the simulated one.
    pub date_header: bool,
}

impl Services {
    /// Returns a configuration for plain HTTP with the system clock and the default limits.
    pub fn new(service: Service) -> Self {
        let (arrivals, limits) = (Arc::new(SystemArrivals), Limits::default());
        Self { service, arrivals, limits, tls: None, date_header: true }
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, limits, tls, date_header, .. } = self;
        f.debug_struct("Services")
            .field("service", service)
            .field("limits", limits)
            .field("tls", &tls.is_some())
            .field("date_header", date_header)
            .finish_non_exhaustive()
    }
}

/// Serves connections until `shutdown` resolves.
///
/// The server then stops accepting, closes idle connections, and waits for requests and lookups in flight, at most for
/// [`Limits::shutdown_time_max`].
///
/// A lookup runs to completion even if its client disconnects. Dropping this future closes the connections but does
/// not cancel the lookups.
pub async fn run<L: Listener>(listener: L, services: Services, shutdown: impl Future<Output = ()>) {
    run_logged(listener, services, Log::new(), shutdown).await;
}

/// Like [`run`], with a log that can be shared between the threads of one server.
async fn run_logged<L: Listener>(
    mut listener: L,
    services: Services,
    log: Log,
    shutdown: impl Future<Output = ()>,
) {
    let Services { service, arrivals, limits, tls, date_header } = services;
    let (observer, lookups) = (Arc::new(log.clone()), TaskTracker::new());
    let endpoint = Arc::new(Endpoint { service, arrivals, observer, body: limits.body, lookups });
    let handler = Arc::new(RequestHandler { endpoint, limits });
    let (limits, lookups) = (&handler.limits, &handler.endpoint.lookups);
    let shared = Arc::new(Connections {
        handler: handler.clone(),
        http1: connection::http1(limits, date_header),
        http2: connection::http2(limits, date_header),
        tls: tls.map(Into::into),
        stop: CancellationToken::new(),
    });

    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! { biased;
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => log_panic(ended),
            (io, _) = listener::accept(&mut listener), if connections.len() < limits.connections_max => {
                connections.spawn(shared.clone().serve(io));
            }
        }
    }

    drop(listener);
    shared.stop.cancel();
    lookups.close();
    let ended = async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
        lookups.wait().await;
    };
    if timeout(limits.shutdown_time_max, ended).await.is_err() {
        tracing::warn!(connections = connections.len(), lookups = lookups.len(), "dropped at the deadline");
    }
    log.flush();
}

/// Logs that a connection's task panicked. Other connections are not affected. The panic message is not logged because it
/// could quote a request.
fn log_panic(ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("a connection panicked");
    }
}
