//! A reverse proxy from HTTP/1.1 to the host over HTTP/2.

use std::net::SocketAddr;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use enrich_tests::tls;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRAILER, TRANSFER_ENCODING};
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

/// Headers that belong to the connection with the client. The upstream client sets its own.
const HOP_BY_HOP: [http::HeaderName; 6] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRAILER, TRANSFER_ENCODING];

/// Larger than all bodies of the scenarios that apply to gateways.
const BODY_BYTES_MAX: usize = 1_000_000;

type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Forwards all requests to `host`, with their method, path, headers and body. Without TLS, the host must know
/// that the protocol is HTTP/2; with TLS, they negotiate it.
pub(super) async fn forward(listener: TcpListener, is_tls: bool, host: SocketAddr) {
    let scheme = if is_tls { "https" } else { "http" };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let client = legacy::Client::builder(TokioExecutor::new())
        .http2_only(!is_tls)
        .build(HttpsConnector::from((tcp, tls::client(&["h2", "http/1.1"]))));
    let base = format!("{scheme}://{host}");
    let router = axum::Router::new().fallback(async move |request| send(&base, &client, request).await);
    axum::serve(listener, router).await.unwrap();
}

async fn send(base: &str, client: &Client, request: Request) -> Response {
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
