//! A hyper gateway that calls the library without tower, as any server can:
//! `cargo run -p enrich-tower --example hyper [ADDRESS]`.

mod sample;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use enrich_lib::drive::Service;
use enrich_lib::wire;
use enrich_tower::Endpoint;
use enrich_vendors::middleware::Deadline;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    match serve(sample::listener().await?, sample::service()?).await {}
}

/// Serves lookups and the gateway's own paths. A gateway that can be stopped waits for [`Endpoint::lookups`] then, as
/// [`EnrichLayer::drain`](enrich_tower::EnrichLayer::drain) does.
pub(crate) async fn serve(listener: TcpListener, service: Service) -> Infallible {
    let endpoint = Arc::new(Endpoint::new(with_deadline(service)));
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()); // times out slow request heads
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(50)).await; // until the process has a free file
            continue;
        };
        let (http, endpoint) = (http.clone(), endpoint.clone());
        let gateway = service_fn(move |request| {
            let endpoint = endpoint.clone();
            async move { Ok::<_, Infallible>(answer(&endpoint, request).await) }
        });
        // A failed connection does not affect the others.
        tokio::spawn(async move { http.serve_connection(TokioIo::new(stream), gateway).await.ok() });
    }
}

/// Answers a lookup, or passes the request on.
async fn answer(endpoint: &Arc<Endpoint>, request: Request<impl Body>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    if head.uri.path() != wire::PATH {
        return others(&head); // or an upstream server, which then reads the body
    }
    if let Err(rejection) = wire::route(&head.method, head.uri.path()) {
        return endpoint.reject(&head.method, rejection).map(Full::new);
    }
    // Reads the body even if the key is invalid. Otherwise, a client could distinguish the reasons of a 401.
    let body = endpoint.read_body(body).await;
    // Without a timeout: a reply states whether credits were spent. If the client disconnects and this future
    // is dropped, a task completes the lookup.
    endpoint.answer_http(&head, body).await.map(Full::new)
}

/// Limits the time of the resolver. The stores limit the time of their calls, except that of a spend: its
/// error promises that nothing was spent and nothing will be, and only the store can know that. The sum of
/// all timeouts must be less than `Policy::hold_ttl`.
fn with_deadline(mut service: Service) -> Service {
    service.resolver = Arc::new(Deadline::new(service.resolver, Deadline::BUDGET));
    service
}

/// Answers requests for the gateway's own paths.
fn others(head: &Parts) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    match head.uri.path() {
        "/hello" => *response.body_mut() = "hello\n".into(),
        _ => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    response
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
    use enrich_lib::model::LookupId;
    use enrich_lib::ports::Credits;
    use enrich_lib::refusal::PortError;

    use super::*;

    /// Credits that take an hour for each settlement.
    struct Slow(Arc<dyn Credits>);

    #[async_trait]
    impl Credits for Slow {
        async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
            self.0.hold(hold).await
        }

        async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
            sleep(Duration::from_secs(3_600)).await;
            self.0.settle(hold, settlement).await
        }
    }

    /// An error after a timeout would be a 500 for a lookup that is billed later.
    #[tokio::test(start_paused = true)]
    async fn waits_for_a_slow_spend() {
        let mut service = sample::service().unwrap();
        service.credits = Arc::new(Slow(service.credits));
        let endpoint = Arc::new(Endpoint::new(with_deadline(service)));
        let request = Request::post(wire::PATH)
            .header("authorization", format!("Bearer {}", sample::key().reveal()))
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(r#"{"email":"ada.marlowe@gmail.com"}"#))
            .unwrap();
        assert_eq!(answer(&endpoint, request).await.status(), StatusCode::OK);
    }
}
