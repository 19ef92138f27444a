//! The only operation, for any server: reads a body and completes the lookup even if its client disconnects.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use enrich_lib::body::Body;
use enrich_lib::drive::Service;
use enrich_lib::lookup::Reply;
use enrich_lib::observe::Observer;
use enrich_lib::wire;
use http::{HeaderMap, Response};
use tokio::runtime::Handle;

use crate::arrivals::{Arrivals, SystemArrivals};
use crate::gather::{BodyLimits, Gathering};
use crate::lookups::{InFlight, Lookups};

/// An endpoint that answers requests for the only operation, independent of the server. [`EnrichLayer`](crate::EnrichLayer)
/// contains one. A server without tower uses it directly, after it has [routed](wire::route) a request.
#[derive(Clone)]
pub struct Endpoint {
    /// Runs the lookups.
    pub service: Service,
    /// The source of time and randomness.
    pub arrivals: Arc<dyn Arrivals>,
    /// Receives one event per lookup. The default discards events.
    pub observer: Arc<dyn Observer>,
    /// The limits on a request's body.
    pub body: BodyLimits,
    /// The lookups in flight. Each continues after its client disconnects, so that its hold is settled.
    pub lookups: Lookups,
}

impl Endpoint {
    /// Creates an endpoint with the system clock and the default limits.
    pub fn new(service: Service) -> Self {
        let (arrivals, body) = (Arc::new(SystemArrivals), BodyLimits::default());
        Self { service, arrivals, observer: Arc::new(()), body, lookups: Lookups::default() }
    }

    /// Reads a request's body. Pass the result to [`answer`](Self::answer) even if it is an error or the key is invalid: the
    /// lookup reports an invalid body only after the checks that come before it.
    ///
    /// Requires a tokio runtime with its timer enabled, unless the body is available immediately.
    pub fn gather<B: http_body::Body>(&self, body: B) -> Gathering<B> {
        Gathering::new(body, self.body)
    }

    /// Answers one request. A panic of the service results in a 500.
    ///
    /// If the future is dropped before it completes, a task on the tokio runtime completes the lookup.
    pub fn answer(self: &Arc<Self>, headers: &HeaderMap, body: Body) -> Answering {
        let (endpoint, in_flight) = (self.clone(), self.lookups.begin());
        let (arrival, request) = (self.arrivals.arrive(), wire::request(headers, body));
        let lookup = Box::pin(async move {
            let Self { service, observer, .. } = &*endpoint;
            service.answer_with(arrival, request, &**observer).await
        });
        Answering { lookup: Some(Guarded { lookup, _in_flight: in_flight }) }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, body, lookups, .. } = self;
        f.debug_struct("Endpoint")
            .field("service", service)
            .field("body", body)
            .field("lookups", lookups)
            .finish_non_exhaustive()
    }
}

/// The future of a response, whose lookup completes even if the future is dropped. See [`Endpoint::answer`].
///
/// The lookup runs in the awaiting task, which saves spawning one. After a drop, the rest runs in a spawned task.
#[must_use = "the response is for the client"]
pub struct Answering {
    /// `None` after completion.
    lookup: Option<Guarded>,
}

impl Future for Answering {
    type Output = Response<Bytes>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Bytes>> {
        let Some(lookup) = &mut self.lookup else {
            return Poll::Pending; // polled after completion
        };
        let polled = Pin::new(lookup).poll(cx);
        if polled.is_ready() {
            self.lookup = None;
        }
        polled
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let Some(lookup) = self.lookup.take() else { return };
        // Without a runtime, the process is about to exit, and holds expire by themselves.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(lookup);
        }
    }
}

/// A lookup whose panic becomes a response. The panic is caught here, because nothing awaits the lookup after a disconnect.
/// Its message is discarded, because it could contain the email.
struct Guarded {
    lookup: Pin<Box<dyn Future<Output = Reply> + Send>>,
    _in_flight: InFlight,
}

impl Future for Guarded {
    type Output = Response<Bytes>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Bytes>> {
        match catch_unwind(AssertUnwindSafe(|| self.lookup.as_mut().poll(cx))) {
            Ok(polled) => polled.map(|reply| wire::response(&reply)),
            Err(_) => Poll::Ready(wire::internal_error()),
        }
    }
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("is_finished", &self.lookup.is_none()).finish()
    }
}
