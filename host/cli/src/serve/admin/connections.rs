//! Connections of the admin listener. Each one has one request.

use std::time::Duration;

use axum::Router;
use axum::middleware::map_response;
use axum::response::Response;
use enrich_host::Limits;
use enrich_host::pages::{self, Pages};
use hyper::header::{CONNECTION, HeaderValue};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

/// The maximum number of connections. A further one replaces one that sends nothing.
pub const CONNECTIONS_MAX: usize = 64;

/// Serves connections. Never returns.
pub async fn serve(listener: TcpListener, router: Router) {
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        connections_per_address_max: CONNECTIONS_MAX / 2,
        streams_max: 8,
        head_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(10),
        ..Limits::default()
    };
    let service = TowerToHyperService::new(router.layer(map_response(close)));
    let pages = Pages { service, limits, tls: None, is_socket_shared: false };
    pages::serve(listener, pages, std::future::pending()).await;
}

async fn close(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
