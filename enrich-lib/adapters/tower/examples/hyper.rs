//! A hyper gateway with the enrichment layer: `cargo run -p enrich-tower --example hyper [ADDRESS]`.

mod sample;

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use enrich_tower::EnrichLayer;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::{Layer, service_fn};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    match serve(sample::listener().await?, EnrichLayer::new(sample::service()?)).await? {}
}

/// Serves lookups and the gateway's own paths until accepting a connection fails.
pub(crate) async fn serve(listener: TcpListener, enrich: EnrichLayer) -> io::Result<Infallible> {
    let gateway = enrich.layer(service_fn(others));
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new());
    loop {
        let (stream, _) = listener.accept().await?;
        let (http, gateway) = (http.clone(), TowerToHyperService::new(gateway.clone()));
        // A failed connection does not affect the others.
        tokio::spawn(async move { http.serve_connection(TokioIo::new(stream), gateway).await.ok() });
    }
}

/// Answers requests for the gateway's own paths.
async fn others(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    match request.uri().path() {
        "/hello" => *response.body_mut() = "hello\n".into(),
        _ => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    Ok(response)
}
