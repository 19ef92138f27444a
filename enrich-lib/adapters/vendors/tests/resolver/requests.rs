//! The requests that a vendor receives.

use std::collections::BTreeSet;
use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use enrich_lib::context::{RequestContext, TraceContext};
use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::provider::{Client, Description, Provider};
use http::{HeaderName, Uri};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tower_service::Service;
use wiremock::matchers::{body_json, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::world::{NAME, SECRET, description, failed, found, look_up, provider, query};

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
        .and(header("user-agent", "enrich"))
        .and(body_json(json!({"email": "ada.marlowe+news@gmail.com"})))
        .respond_with(ResponseTemplate::new(200).set_body_json(person()))
        .expect(1)
        .mount(&vendor)
        .await;
    let provider = provider(description(&vendor.uri(), 20_000), Client::new().unwrap());
    assert_eq!(look_up(&provider).await, found());
    // A vendor receives nothing else that could identify the lookup or the client.
    let request = vendor.received_requests().await.unwrap().remove(0);
    let names = request.headers.keys().map(HeaderName::as_str).collect::<BTreeSet<_>>();
    let expected = ["accept", "authorization", "content-length", "content-type", "host", "user-agent"];
    assert_eq!(names, BTreeSet::from(expected));
}

#[tokio::test]
async fn each_request_continues_the_trace_of_its_lookup() {
    const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let server = MockServer::start().await;
    let answer = ResponseTemplate::new(200).set_body_json(format!("linkedin.com/in/{NAME}"));
    Mock::given(method("GET")).respond_with(answer).expect(6).mount(&server).await;
    let vendors = ["acme", "other"].map(|name| open(name, &server));
    let trace = TraceContext::parse(&format!("00-{TRACE_ID}-00f067aa0ba902b7-01")).unwrap();
    let mut context = RequestContext::default();
    context.trace = Some(trace.with_state("congo=t61rcWkgMzE"));
    let mut traced = query();
    traced.context = Some(Arc::new(context));
    for query in [&traced, &traced, &query()] {
        for vendor in &vendors {
            vendor.find(query).await.unwrap();
        }
    }

    let requests = server.received_requests().await.unwrap();
    let header = |i: usize, name: &str| Some(requests[i].headers.get(name)?.to_str().unwrap());
    let parents = [0, 1, 2, 3].map(|i| header(i, "traceparent").unwrap());
    for (i, parent) in parents.into_iter().enumerate() {
        assert_eq!(TraceContext::parse(parent).unwrap().trace_id().to_string(), TRACE_ID);
        assert!(parent.ends_with("-01") && !parent.contains("00f067aa0ba902b7"), "{parent}");
        assert_eq!(header(i, "tracestate"), Some("congo=t61rcWkgMzE"));
    }
    assert_eq!(BTreeSet::from(parents).len(), 4, "{parents:?}");
    for i in [4, 5] {
        assert_eq!((header(i, "traceparent"), header(i, "tracestate")), (None, None));
    }
}

/// Creates a vendor that needs no key.
fn open(name: &str, server: &MockServer) -> Provider {
    let text = format!(
        "name = \"{name}\"\nbills = \"requests\"\n[request]\nmethod = \"GET\"\nurl = \"{}/{{email}}\"\n[answer]\nprofile = [\"\"]",
        server.uri()
    );
    provider(Description::parse(&text).unwrap(), Client::new().unwrap())
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
    assert_eq!(look_up(&open("open", &vendor)).await, found());
    let requests = vendor.received_requests().await.unwrap();
    assert!(requests[0].body.is_empty() && !requests[0].headers.contains_key("content-type"));
}

/// A network that fails every connection with `EMFILE`, as the operating system reports it.
#[derive(Clone)]
struct NoFilesLeft;

impl Service<Uri> for NoFilesLeft {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

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
    assert_eq!(look_up(&provider).await, failed(VendorErrorKind::TooManyOpenFiles));
}
