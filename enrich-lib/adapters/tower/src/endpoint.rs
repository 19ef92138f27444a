//! The one operation for any server: a body gathered, a lookup answered whatever happens to its client.

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

/// Answers requests for the one operation, whichever server they come from. [`EnrichLayer`](crate::EnrichLayer) has one;
/// a server without tower uses it by itself, after it has [routed](wire::route) a request.
#[derive(Clone)]
pub struct Endpoint {
    /// Answers the lookups.
    pub service: Service,
    /// The clock and the randomness.
    pub arrivals: Arc<dyn Arrivals>,
    /// Is told of each lookup: nobody, if it is not set.
    pub observer: Arc<dyn Observer>,
    /// What a request's body may take.
    pub body: BodyLimits,
    /// Those in flight. Each outlives a client that hangs up, so that its hold is settled.
    pub lookups: Lookups,
}

impl Endpoint {
    /// By the system's clock, with the default limits.
    pub fn new(service: Service) -> Self {
        let (arrivals, body) = (Arc::new(SystemArrivals), BodyLimits::default());
        Self { service, arrivals, observer: Arc::new(()), body, lookups: Lookups::default() }
    }

    /// Gathers a request's body: its bytes, or why there are none. It belongs into [`answer`](Self::answer) either way, as a
    /// stranger's does: the chain decides when it matters.
    ///
    /// Needs a tokio runtime with time, if the body is not there at once.
    pub fn gather<B: http_body::Body>(&self, body: B) -> Gathering<B> {
        Gathering::new(body, self.body)
    }

    /// Answers one request. A part of the service that panics is a 500.
    ///
    /// If the future is dropped half-way, a task of the tokio runtime finishes the lookup.
    pub fn answer(self: &Arc<Self>, headers: &HeaderMap, body: Body) -> Answering {
        let (endpoint, in_flight) = (self.clone(), self.lookups.begin());
        let (arrival, request) = (self.arrivals.arrive(), wire::request(headers, body));
        let lookup = Box::pin(async move {
            let Self { service, observer, .. } = &*endpoint;
            service.answer_observed(arrival, request, &**observer).await
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

/// A lookup that is finished, whoever stops waiting for it. See [`Endpoint::answer`].
///
/// It runs where it is awaited, which spares it a task; if it is dropped half-way, the rest runs in a task.
#[must_use = "the response is for the client"]
pub struct Answering {
    /// `None` once it is finished: there is nothing left to hand over.
    lookup: Option<Guarded>,
}

impl Future for Answering {
    type Output = Response<Bytes>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Bytes>> {
        let Some(lookup) = &mut self.lookup else {
            return Poll::Pending; // polled after its end
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
        // Without a runtime the whole process is about to end, and holds expire by themselves.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(lookup);
        }
    }
}

/// A lookup whose panic is a response. It is caught here and not by the one who awaits: after a hang-up nobody does. Its
/// message goes no further: it could quote the email.
struct Guarded {
    lookup: Pin<Box<dyn Future<Output = Reply> + Send>>,
    _in_flight: InFlight,
}

impl Future for Guarded {
    type Output = Response<Bytes>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Bytes>> {
        match catch_unwind(AssertUnwindSafe(|| self.lookup.as_mut().poll(cx))) {
            Ok(polled) => polled.map(|reply| wire::response(&reply)),
            Err(_) => Poll::Ready(wire::broken()),
        }
    }
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("is_finished", &self.lookup.is_none()).finish()
    }
}
