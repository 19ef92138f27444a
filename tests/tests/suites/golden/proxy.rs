//! A reverse proxy from HTTP/1.1 to any transport of the host.

use std::net::SocketAddr;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use enrich_tests::http::{HttpClient, Transport};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRAILER, TRANSFER_ENCODING};
use tokio::net::TcpListener;

/// Headers that belong to the connection with the client. The upstream client sets its own.
const HOP_BY_HOP: [http::HeaderName; 6] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRAILER, TRANSFER_ENCODING];

/// Larger than all bodies of the scenarios that apply to gateways.
const BODY_BYTES_MAX: usize = 1_000_000;

/// Forwards all requests to `host` over `transport`, with their method, path, headers and body.
pub(super) async fn forward(listener: TcpListener, transport: Transport, host: SocketAddr) {
    let scheme = if transport.is_tls() { "https" } else { "http" };
    let (base, client) = (format!("{scheme}://{host}"), transport.client());
    let router = axum::Router::new().fallback(async move |request| send(&base, &client, request).await);
    axum::serve(listener, router).await.unwrap();
}

async fn send(base: &str, client: &HttpClient, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    for name in HOP_BY_HOP {
        head.headers.remove(name);
    }
    head.uri = format!("{base}{}", head.uri).parse().unwrap();
    head.version = http::Version::default();
    let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap();
    let response = client.request(Request::from_parts(head, body.into())).await.unwrap();
    response.map(Body::new)
}
