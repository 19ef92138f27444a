//! The requests that a vendor receives, over several kinds of network.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use enrich_lib::context::{RequestContext, TraceContext};
use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::provider::{Client, Description};
use http::{Request, Response, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tower_service::Service;
use wiremock::matchers::{body_json, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::world::{NAME, Outcome, SECRET, description, look_up, provider, query};

/// The output of `printf ada.marlowe+news@gmail.com | sha256sum`.
const SHA256: &str = "484db0ff72794f3caf0cb95be3d0a8d03b76851b41b748d0157fdb28eac81bc9";

fn person() -> Value {
    json!({"score": 95, "person": {"linkedin": format!("linkedin.com/in/{NAME}")}})
}

#[tokio::test]
async fn the_vendor_gets_the_address_as_it_was_given_in_lower_case() {
    let vendor = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path(format!("/people/{SHA256}")))
        .and(query_param("email", "ada.marlowe+news@gmail.com"))
        .and(query_param("key", SECRET))
        .and(header("authorization", format!("Bearer {SECRET}")))
        .and(header("accept", "application/json"))
        .and(header("content-type", "application/json"))
        .and(body_json(json!({"email": "ada.marlowe+news@gmail.com"})))
        .respond_with(ResponseTemplate::new(200).set_body_json(person()))
        .expect(1)
        .mount(&vendor)
        .await;
    let provider = provider(description(&vendor.uri(), 20_000), Client::new().unwrap());
    assert_eq!(look_up(&provider).await, Outcome::found());
}

#[tokio::test]
async fn each_request_continues_the_trace_of_its_lookup() {
    const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let vendor = MockServer::start().await;
    let answer = ResponseTemplate::new(200).set_body_json(person());
    Mock::given(method("POST")).respond_with(answer).expect(3).mount(&vendor).await;
    let provider = provider(description(&vendor.uri(), 20_000), Client::new().unwrap());
    let trace = TraceContext::parse(&format!("00-{TRACE_ID}-00f067aa0ba902b7-01")).unwrap();
    let mut context = RequestContext::default();
    context.trace = Some(trace.with_state("congo=t61rcWkgMzE"));
    let mut traced = query();
    traced.context = Some(Arc::new(context));
    for query in [&traced, &traced, &query()] {
        provider.find(query).await.unwrap();
    }

    let requests = vendor.received_requests().await.unwrap();
    let header = |i: usize, name: &str| Some(requests[i].headers.get(name)?.to_str().unwrap());
    let parents = [0, 1].map(|i| TraceContext::parse(header(i, "traceparent").unwrap()).unwrap());
    assert!(parents.iter().all(|trace| trace.trace_id().to_string() == TRACE_ID));
    for i in [0, 1] {
        assert!(header(i, "traceparent").unwrap().ends_with("-01"));
        assert!(!header(i, "traceparent").unwrap().contains("00f067aa0ba902b7"));
        assert_eq!(header(i, "tracestate"), Some("congo=t61rcWkgMzE"));
    }
    assert_ne!(header(0, "traceparent"), header(1, "traceparent"));
    assert_eq!((header(2, "traceparent"), header(2, "tracestate")), (None, None));
}

#[tokio::test]
async fn a_vendor_can_be_asked_without_a_key_and_without_a_body() {
    let vendor = MockServer::start().await;
    Mock::given(method("GET"))
        .and(path("/ada.marlowe%2Bnews%40gmail.com"))
        .respond_with(ResponseTemplate::new(200).set_body_json(format!("linkedin.com/in/{NAME}")))
        .expect(1)
        .mount(&vendor)
        .await;
    let text = format!(
        "name = \"open\"\nbills = \"requests\"\n[request]\nmethod = \"GET\"\nurl = \"{}/{{email}}\"\n[answer]\nprofile = [\"\"]",
        vendor.uri()
    );
    let provider = provider(Description::parse(&text).unwrap(), Client::new().unwrap());
    assert_eq!(look_up(&provider).await, Outcome::found());
    let requests = vendor.received_requests().await.unwrap();
    assert!(requests[0].body.is_empty() && !requests[0].headers.contains_key("content-type"));
}

/// A network of in-memory pipes, all of which end at the vendor.
#[derive(Clone)]
struct Pipes {
    vendor: mpsc::UnboundedSender<DuplexStream>,
    is_http2: bool,
}

struct Pipe {
    stream: TokioIo<DuplexStream>,
    is_http2: bool,
}

impl Service<Uri> for Pipes {
    type Response = Pipe;
    type Error = io::Error;
    type Future = Ready<io::Result<Pipe>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        assert_eq!(uri.authority().unwrap(), "localhost:7");
        let (ours, theirs) = duplex(1024);
        self.vendor.send(theirs).unwrap();
        ready(Ok(Pipe { stream: TokioIo::new(ours), is_http2: self.is_http2 }))
    }
}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        if self.is_http2 { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Answers the first request with 404, and all others with a profile.
async fn answer(request: Request<Incoming>, count: u32) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.into_body().collect().await.unwrap().to_bytes().len(), 38);
    let status = if count == 0 { 404 } else { 200 };
    let answer = Response::builder().status(status).header("content-type", "application/json");
    Ok(answer.body(Full::new(Bytes::from(person().to_string()))).unwrap())
}

#[tokio::test]
async fn supports_custom_connectors_and_http2() {
    for (is_http2, version) in [(false, Version::HTTP_11), (true, Version::HTTP_2)] {
        let (vendor, mut connections) = mpsc::unbounded_channel();
        let serving = tokio::spawn(async move {
            while let Some(connection) = connections.recv().await {
                let count = AtomicU32::new(0);
                let service = service_fn(move |request: Request<Incoming>| {
                    assert_eq!(request.version(), version);
                    answer(request, count.fetch_add(1, Relaxed))
                });
                let server = auto::Builder::new(TokioExecutor::new());
                // Connections are served one after another, so the test hangs unless all requests share one.
                let _ = server.serve_connection(TokioIo::new(connection), service).await;
            }
        });
        let client = Client::over(Pipes { vendor, is_http2 });
        let provider = provider(description("http://localhost:7", 20_000), client);
        for outcome in [Outcome::NoMatch, Outcome::found(), Outcome::found()] {
            assert_eq!(look_up(&provider).await, outcome, "{version:?}");
        }
        serving.abort();
    }
}

/// A network that fails every connection with `EMFILE`, as the operating system reports it.
#[derive(Clone)]
struct NoFilesLeft;

impl Service<Uri> for NoFilesLeft {
    type Response = Pipe;
    type Error = io::Error;
    type Future = Ready<io::Result<Pipe>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(Err(io::Error::from_raw_os_error(24)))
    }
}

#[tokio::test]
async fn reports_lack_of_file_descriptors() {
    let provider = provider(description("http://localhost:7", 20_000), Client::over(NoFilesLeft));
    assert_eq!(look_up(&provider).await, Outcome::retryable(VendorErrorKind::TooManyOpenFiles));
}
