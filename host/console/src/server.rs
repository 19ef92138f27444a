//! The connections.
//!
//! The web application has its own listener, so that its limits and its load are separate from those of
//! lookups.

use std::sync::Arc;
use std::time::Duration;

use enrich_host::pages::{self, Pages};
use enrich_host::{ClientAddress, Limits};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::TcpListener;

use crate::console::Config;
use crate::router::router;

/// The maximum number of connections. A further one replaces an idle one.
pub const CONNECTIONS_MAX: usize = 512;

/// Serves the web application until `shutdown` resolves. Requests in flight are completed. If another process
/// accepts the connections of a shared socket, this one then stops accepting at once.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    tls: Option<Arc<ServerConfig>>,
    is_socket_shared: bool,
    shutdown: impl Future<Output = ()>,
) {
    let limits = limits(&config.client_address);
    let service = TowerToHyperService::new(router(config));
    pages::serve(listener, Pages { service, limits, tls, is_socket_shared }, shutdown).await;
}

fn limits(client_address: &ClientAddress) -> Limits {
    let has_proxy = *client_address != ClientAddress::Peer;
    Limits {
        connections_max: CONNECTIONS_MAX,
        // All connections of a proxy have its address.
        connections_per_address_max: if has_proxy { CONNECTIONS_MAX } else { CONNECTIONS_MAX / 8 },
        streams_max: 32,
        // Also the time to receive a page.
        idle_timeout: Duration::from_secs(60),
        shutdown_timeout: Duration::from_secs(5),
        ..Limits::default()
    }
}
