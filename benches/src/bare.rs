//! Bare hyper, to measure the cost of HTTP itself. It reads a request and replies with as many bytes as a
//! successful lookup, or on another path with as many as a refusal.

use std::convert::Infallible;

use bytes::Bytes;
use enrich_lib::wire;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

const FOUND: &[u8] = br#"{"lookup_id":"lookup_01a1fc3deb41791784f7eeb00ad60d16","status":"found","profile":{"linkedin_url":"https://www.linkedin.com/in/sample-ada-marlowe-001"}}"#;
const REFUSED: &[u8] = br#"{"error":"invalid_request"}"#;

/// Serves one connection until it closes.
pub async fn serve<Io: AsyncRead + AsyncWrite + Unpin>(io: Io) {
    // Errors are caused by the client and ignored.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(io), service_fn(answer)).await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, reply) = if request.uri().path() == wire::PATH { (200, FOUND) } else { (404, REFUSED) };
    let _ = request.into_body().collect().await;
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::new(Bytes::from_static(reply))).expect("a status, a header and a body"))
}
