//! The standalone host of the person enrichment service: a hyper server around [`enrich_lib`], for HTTP/1.1 and HTTP/2,
//! with or without TLS.
//!
//! [`run`] serves whatever a [`Listener`] accepts: TCP in earnest, memory in tests, a simulated network.
//!
//! # Layout
//!
//! In reading order, each module using only those before it: [`Limits`] · [`Listener`] · [`swap`] what is taken anew while
//! the host serves · [`tls`] · `aside` futures beside the main one of a task · `pulse` what a connection waits for ·
//! `replies` bodies for hyper's own replies · `stream` a connection's bytes · [`causes`] an error as one line · `log`
//! one event per lookup · `answer` one request, with the [`Endpoint`] of [`enrich_tower`] · `connection` · [`run`] ·
//! [`workers`] the same on several threads.
//! Beside them, what the command line uses too: [`patience`] how long ports may take · [`guards`] how vendors are asked ·
//! [`vendors`] whom a lookup asks · [`rows`] files of people.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod limits;

mod listener;

pub mod swap;

pub mod tls;

mod aside;

mod pulse;

mod replies;

mod stream;

pub mod causes;

mod log;

mod answer;

mod connection;

pub mod workers;

pub mod patience;

pub mod guards;

pub mod vendors;

pub mod rows;

use std::fmt;
use std::sync::Arc;

use enrich_lib::drive::Service;
use enrich_tower::{Endpoint, Lookups};
use rustls::ServerConfig;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use enrich_tower::{Arrivals, BodyLimits, SystemArrivals};

pub use crate::limits::Limits;
pub use crate::listener::Listener;

use crate::answer::Desk;
use crate::connection::Connections;
use crate::log::Log;

/// What [`run`] serves, and how.
#[derive(Clone)]
pub struct Services {
    /// Answers the lookups.
    pub service: Service,
    /// The clock and the randomness.
    pub arrivals: Arc<dyn Arrivals>,
    /// What a stranger may take.
    pub limits: Limits,
    /// HTTPS if there is a configuration (see [`tls::load`]), HTTP if not.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether replies have a `date`. Simulations switch it off: it is the machine's, not theirs.
    pub date_header: bool,
}

impl Services {
    /// Serves plain HTTP by the system's clock, with the default limits.
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

/// Serves until `shutdown` resolves. Then it accepts no more, ends idle connections, and returns once the requests and
/// lookups in flight have ended, or after [`Limits::shutdown_time_max`].
///
/// A lookup whose client hangs up is finished all the same. Dropping this future drops the connections, not the lookups.
pub async fn run<L: Listener>(listener: L, services: Services, shutdown: impl Future<Output = ()>) {
    run_logged(listener, services, Log::new(), shutdown).await;
}

/// [`run`] with a log that other threads of the same server may share.
async fn run_logged<L: Listener>(
    mut listener: L,
    services: Services,
    log: Log,
    shutdown: impl Future<Output = ()>,
) {
    let Services { service, arrivals, limits, tls, date_header } = services;
    let (observer, lookups) = (Arc::new(log.clone()), Lookups::default());
    let endpoint = Arc::new(Endpoint { service, arrivals, observer, body: limits.body, lookups });
    let desk = Arc::new(Desk { endpoint, limits });
    let (limits, lookups) = (&desk.limits, &desk.endpoint.lookups);
    let shared = Arc::new(Connections {
        desk: desk.clone(),
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
            Some(ended) = connections.join_next() => tell_of_panic(ended),
            (io, _) = listener::accept(&mut listener), if connections.len() < limits.connections_max => {
                connections.spawn(shared.clone().serve(io));
            }
        }
    }

    drop(listener);
    shared.stop.cancel();
    let ended = async {
        while let Some(ended) = connections.join_next().await {
            tell_of_panic(ended);
        }
        lookups.finished().await;
    };
    if timeout(limits.shutdown_time_max, ended).await.is_err() {
        tracing::warn!(connections = connections.len(), lookups = lookups.count(), "dropped at the deadline");
    }
    log.flush();
}

/// A connection that panicked ends alone. The panic's message stays out of the log: it could quote a request.
fn tell_of_panic(ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("a connection panicked");
    }
}
