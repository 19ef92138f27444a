//! A vendor at the wire, and the program's sources that query it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::io;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use enrich_node::sources::{Source, Sources, Vendor};
use enrich_vendors::middleware::{CachePolicy, CircuitBreakerPolicy, Deadline, VendorPolicy};
use enrich_vendors::provider::{Client, Description, Provider};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;
use tower_service::Service;
use turmoil::net::{TcpListener, TcpStream};

use crate::clock::random_ms;
use crate::event::Event;
use crate::fault::VendorFault;
use crate::plan::Plan;
use crate::request::HttpVersion;
use crate::topology::{HTTP_PORT, VENDOR};
use crate::trace::Trace;

type AnyError = Box<dyn Error + Send + Sync>;

/// Replies to `GET /email`, and for the other sources to `GET /other/email`, with the profile or with 404.
#[derive(Clone)]
pub(crate) struct SimulatedVendor {
    people: Arc<BTreeMap<String, String>>,
    faults: Arc<VendorFaults>,
    trace: Trace,
}

/// The active fault of the vendor, and the fraction of requests that it affects, from 0 to 1.
pub(crate) struct VendorFaults(Mutex<(StdRng, Option<(VendorFault, f64)>)>);

impl VendorFaults {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new((StdRng::seed_from_u64(seed), None)))
    }

    pub(crate) fn set(&self, fault: Option<(VendorFault, f64)>) {
        self.0.lock().1 = fault;
    }

    /// Draws the latency and the fault, if any, of the next request.
    fn draw(&self) -> (Duration, Option<VendorFault>) {
        let (rng, current) = &mut *self.0.lock();
        let latency = random_ms(rng, 5..1_500);
        (latency, current.and_then(|(fault, rate)| rng.random_bool(rate).then_some(fault)))
    }
}

impl SimulatedVendor {
    pub(crate) fn new(plan: &Plan, faults: Arc<VendorFaults>, trace: Trace) -> Self {
        let other =
            plan.people_of_other_source().map(|(email, profile)| (format!("{OTHER}{email}"), profile));
        let people = plan.people_of_vendor().chain(other);
        let people = people.map(|(person, profile)| (person, profile.as_str().to_owned()));
        Self { people: Arc::new(people.collect()), faults, trace }
    }

    pub(crate) async fn serve(self) -> turmoil::Result {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, HTTP_PORT)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            let vendor = self.clone();
            let service = service_fn(move |request| {
                let vendor = vendor.clone();
                async move { vendor.respond(&request).await }
            });
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().auto_date_header(false);
            builder.http2().auto_date_header(false);
            // The client observes the end of the connection.
            tokio::spawn(async move { drop(builder.serve_connection(TokioIo::new(stream), service).await) });
        }
    }

    async fn respond<B>(&self, request: &Request<B>) -> Result<Response<ResponseBody>, Infallible> {
        let person = request.uri().path().trim_start_matches('/').replace("%40", "@");
        let (latency, fault) = self.faults.draw();
        self.trace.record(Event::VendorCalled(person.trim_start_matches(OTHER).to_owned(), fault));
        sleep(latency).await;
        let found = self.people.get(&person);
        let response = found.map_or(status(StatusCode::NOT_FOUND), |profile| {
            Response::new(ResponseBody::Complete(Bytes::from(format!(r#"{{"profile":"{profile}"}}"#))))
        });
        Ok(match fault {
            None => response,
            Some(VendorFault::Error) => status(StatusCode::INTERNAL_SERVER_ERROR),
            Some(VendorFault::Hang) => pending().await,
            Some(VendorFault::Delay(by)) => {
                sleep(by).await;
                response
            }
            Some(VendorFault::Truncated) => response.map(ResponseBody::truncated),
        })
    }
}

fn status(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Complete(Bytes::from_static(b"{}")));
    *response.status_mut() = status;
    response
}

/// The body of a response.
enum ResponseBody {
    Complete(Bytes),
    /// The rest of a truncated body, and the length that its headers declare.
    Truncated(Option<Bytes>, usize),
    Sent,
}

impl ResponseBody {
    fn truncated(self) -> Self {
        let Self::Complete(bytes) = self else { return self };
        Self::Truncated(Some(bytes.slice(..bytes.len() / 2)), bytes.len())
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        Poll::Ready(match &mut *self {
            Self::Complete(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Sent;
                Some(Ok(Frame::data(bytes)))
            }
            Self::Truncated(rest, _) => {
                Some(rest.take().map(Frame::data).ok_or("simulated: the connection was reset".into()))
            }
            Self::Sent => None,
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Complete(bytes) => bytes.len() as u64,
            Self::Truncated(_, length) => *length as u64,
            Self::Sent => 0,
        })
    }
}

/// Returns the sources of a node: the people in its database, then the vendor. The other sources are a vendor. With
/// middleware, there are two contracts with the vendor, each with low limits, and a cache. Otherwise there is
/// one, which is asked once for each lookup. Vendors of the other sources have the same names and another URL.
pub(crate) fn sources(has_middleware: bool, http: HttpVersion, is_other: bool) -> turmoil::Result<Sources> {
    let (client, path) = (Client::over(Connector(http)), if is_other { OTHER } else { "" });
    let vendor = |name: &str, policy| -> turmoil::Result<Source> {
        let description = format!(
            "name = \"{name}\"\nbills = \"matches\"\n\
             request = {{ method = \"GET\", url = \"http://localhost/{path}{{email}}\" }}\n\
             answer = {{ profile = [\"/profile\"], profile_is = \"url\" }}\n\
             statuses = {{ no_match = [404] }}\nlimits.deadline_ms = 20_000\n"
        );
        let provider = Provider::new(Description::parse(&description)?, client.clone())?;
        Ok(Source::Vendor(Vendor { provider: Arc::new(provider), policy }))
    };
    let mut list = if is_other { Vec::new() } else { vec![Source::People] };
    let mut policy = VendorPolicy::default();
    if has_middleware {
        policy.timeout = Duration::from_secs(4);
        policy.concurrency = CONCURRENCY;
        policy.queue_max = QUEUE_MAX;
        policy.tries_max = 3;
        policy.breaker = CircuitBreakerPolicy { window_calls: 4, calls_min: 2, ..BREAKER };
        list.extend([vendor("first", policy)?, vendor("second", policy)?]);
    } else {
        // The deadline of the lookup ends its request, because that of the description is longer.
        policy.timeout = Deadline::BUDGET * 2;
        policy.concurrency = 1_000;
        policy.tries_max = 1;
        policy.breaker = BREAKER;
        list.push(vendor("only", policy)?);
    }
    Ok(Sources { list, deadline: Deadline::BUDGET, cache: has_middleware.then_some(CACHE) })
}

/// The path of the URL in the other sources.
const OTHER: &str = "other/";

/// The limits of a vendor with middleware: requests at once, and lookups that wait.
pub(crate) const CONCURRENCY: usize = 2;
pub(crate) const QUEUE_MAX: usize = 1;

/// The pause must be over when the run has healed.
const BREAKER: CircuitBreakerPolicy = CircuitBreakerPolicy {
    window_calls: 100,
    calls_min: 20,
    failure_rate: 0.5,
    pause: Duration::from_millis(500),
    probes: 2,
};

/// The TTLs are short enough for entries to expire during a run. The capacity is small enough to cause
/// evictions.
const CACHE: CachePolicy = CachePolicy {
    entries_max: NonZeroUsize::new(3).expect("not zero"),
    found_ttl: Duration::from_secs(2),
    not_found_ttl: Duration::from_secs(1),
};

/// Connects to the vendor over the simulated network, whatever the URL.
#[derive(Clone)]
struct Connector(HttpVersion);

type Connecting = Pin<Box<dyn Future<Output = io::Result<VendorStream>> + Send>>;

impl Service<Uri> for Connector {
    type Response = VendorStream;
    type Error = io::Error;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Connecting {
        let Self(http) = *self;
        Box::pin(async move {
            Ok(VendorStream(TokioIo::new(TcpStream::connect((VENDOR, HTTP_PORT)).await?), http))
        })
    }
}

/// A connection to the vendor.
struct VendorStream(TokioIo<TcpStream>, HttpVersion);

impl Connection for VendorStream {
    fn connected(&self) -> Connected {
        match self.1 {
            HttpVersion::Http1 => Connected::new(),
            HttpVersion::Http2 => Connected::new().negotiated_h2(),
        }
    }
}

impl Read for VendorStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for VendorStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
