//! The accept loop and the graceful shutdown.

use std::sync::Arc;

use enrich_lib::drive::Service;
use enrich_lib::observe::Observer;
use enrich_tower::{Arrivals, Endpoint, SystemArrivals};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::client_address::ClientAddress;
use crate::connection::Connections;
use crate::handler::{Handler, RequestHandler};
use crate::limits::Limits;
use crate::listener::{Acceptor, Listener};
use crate::log::Log;
use crate::registry::{ConnectionMonitor, Registry, Slot};
use crate::shutdown::Shutdown;

/// The configuration of [`run`].
#[derive(Clone, derive_more::Debug)]
pub struct Services {
    /// Runs the lookups.
    pub service: Service,
    /// The source of time and randomness.
    #[debug(skip)]
    pub arrivals: Arc<dyn Arrivals>,
    /// Limits on resources that clients can consume.
    pub limits: Limits,
    /// The source of the client's address in the log. `None`, the default, logs no address, because it is
    /// personal data.
    pub client_address: Option<ClientAddress>,
    /// The TLS configuration (see [`tls::load`](crate::tls::load)). `None` serves plain HTTP.
    #[debug("{}", tls.is_some())]
    pub tls: Option<Arc<ServerConfig>>,
    /// Receives the event of each lookup after it is logged. Its clock is not used. Ports are timed if it
    /// asks for it.
    #[debug(skip)]
    pub observer: Arc<dyn Observer>,
    /// Reads the connections of the server.
    #[debug(skip)]
    pub connections: ConnectionMonitor,
    /// Another process holds the listening socket and accepts the connections that this server does not. A
    /// shutdown then stops accepting at once. Otherwise, connections that wait in the backlog would be reset
    /// when the socket is closed.
    pub is_socket_shared: bool,
    /// Adds a `date` header to replies. Simulations disable it because it shows the machine's clock, not the
    /// simulated one.
    pub date_header: bool,
}

impl Services {
    /// Returns a configuration for plain HTTP with the system clock and the default limits.
    pub fn new(service: Service) -> Self {
        let (arrivals, limits) = (Arc::new(SystemArrivals), Limits::default());
        Self {
            service,
            arrivals,
            limits,
            client_address: None,
            tls: None,
            observer: Arc::new(()),
            connections: ConnectionMonitor::default(),
            is_socket_shared: false,
            date_header: true,
        }
    }
}

/// Serves connections until `shutdown` resolves.
///
/// For [`Limits::drain_timeout`], the server then still replies to requests, but announces in each reply that
/// it closes the connection. It also accepts connections, unless [`Services::is_socket_shared`]. Then it
/// accepts those that wait in the listener's queue and closes the listener. 250 ms later it closes idle
/// connections, and waits for requests and lookups in flight, at most for [`Limits::shutdown_timeout`].
///
/// A lookup runs to completion even if its client disconnects. Dropping this future closes the connections
/// but does not cancel the lookups.
pub async fn run<L: Listener>(listener: L, services: Services, shutdown: impl Future<Output = ()>) {
    let phases = Arc::new(Shutdown::new());
    let registry = Registry::new(&services.limits, phases.clone());
    services.connections.watch(&registry);
    let is_socket_shared = services.is_socket_shared;
    let mut acceptor = Acceptor::new(listener, registry.clone(), phases.clone(), is_socket_shared);
    let accept = async move || acceptor.accept().await;
    // The order ensures that the listener's queue is accepted before the last phase begins, also after a
    // pause of this thread.
    let served = async {
        tokio::join! { biased;
            serve(accept, services, Log::new(), phases),
            registry.shut_down_after(shutdown, is_socket_shared),
        }
    };
    registry.sweep_during(served).await;
}

/// Serves lookups on the connections that `accept` returns, like [`serve_connections`].
pub(crate) async fn serve<Io>(
    accept: impl AsyncFnMut() -> Option<(Io, Slot)>,
    services: Services,
    log: Log,
    shutdown: Arc<Shutdown>,
) where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Services {
        service,
        arrivals,
        limits,
        client_address,
        tls,
        observer: next,
        connections: _,
        is_socket_shared: _,
        date_header,
    } = services;
    let mut endpoint = Endpoint::new(service);
    endpoint.arrivals = arrivals;
    endpoint.observer = Arc::new((log.clone(), next));
    endpoint.body = limits.body;
    let endpoint = Arc::new(endpoint);
    let handler = Arc::new(RequestHandler { endpoint, limits, client_address, shutdown: shutdown.clone() });
    let lookups = handler.endpoint.lookups.clone();
    let completed = async {
        lookups.close();
        lookups.wait().await;
    };
    let connections = Connections::new(handler, tls, date_header, shutdown);
    if let Err(connections) = serve_connections(accept, connections, completed).await {
        tracing::warn!(
            connections,
            lookups = lookups.len(),
            "shutdown timed out; dropping open connections and lookups"
        );
    }
    log.flush();
}

/// Serves the connections that `accept` returns, the last one followed by `None`, until the shutdown closes
/// them. `accept` must be cancel safe. Then waits until all connections are closed and `completed` resolves.
///
/// Errors: the number of open connections, after [`Limits::shutdown_timeout`].
pub(crate) async fn serve_connections<Io, H>(
    mut accept: impl AsyncFnMut() -> Option<(Io, Slot)>,
    shared: Connections<H>,
    completed: impl Future<Output = ()>,
) -> Result<(), usize>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let (shared, mut connections) = (Arc::new(shared), JoinSet::new());
    loop {
        tokio::select! { biased;
            Some(closed) = connections.join_next() => log_panic(closed),
            accepted = accept() => match accepted {
                Some((io, slot)) => drop(connections.spawn(shared.clone().serve(io, slot))),
                None => break,
            },
        }
    }

    drop(accept); // closes the listener
    shared.shutdown.closing.cancelled().await;
    let drained = async {
        while let Some(closed) = connections.join_next().await {
            log_panic(closed);
        }
        completed.await;
    };
    timeout(shared.limits().shutdown_timeout, drained).await.map_err(|_| connections.len())
}

/// Logs that a connection's task panicked. Other connections are not affected. The panic message is not
/// logged because it could quote a request.
fn log_panic(closed: Result<(), JoinError>) {
    if closed.is_err_and(|error| error.is_panic()) {
        tracing::error!("a connection's task panicked");
    }
}
