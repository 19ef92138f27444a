//! The one operation for any server: a body gathered, a lookup answered whatever happens to its client.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::iter::successors;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use enrich_lib::body::Body;
use enrich_lib::drive::Service;
use enrich_lib::lookup::{Reply, Request};
use enrich_lib::model::{Arrival, LookupId, WorkspaceId};
use enrich_lib::wire;
use http::{HeaderMap, Response};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::arrivals::{Arrivals, SystemArrivals};
use crate::gather::{BodyLimits, Gathering};
use crate::lookups::Lookups;

/// Answers requests for the one operation, whichever server they come from. [`EnrichLayer`](crate::EnrichLayer) has one;
/// a server without tower uses it by itself, after it has [routed](wire::route) a request.
#[derive(Clone)]
pub struct Endpoint {
    /// Answers the lookups.
    pub service: Service,
    /// The clock and the randomness.
    pub arrivals: Arc<dyn Arrivals>,
    /// What a request's body may take.
    pub body: BodyLimits,
    /// Those in flight. Each outlives a client that hangs up, so that its hold is settled.
    pub lookups: Lookups,
}

impl Endpoint {
    /// By the system's clock, with the default limits.
    pub fn new(service: Service) -> Self {
        let (arrivals, body) = (Arc::new(SystemArrivals), BodyLimits::default());
        Self { service, arrivals, body, lookups: Lookups::default() }
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
        let lookup = async move {
            let response = endpoint.look_up(arrival, request).await;
            drop(in_flight);
            response
        };
        Answering { lookup: Some(Box::pin(lookup)) }
    }

    async fn look_up(&self, arrival: Arrival, request: Request) -> Response<Bytes> {
        let started = Instant::now();
        let mut answer = pin!(self.service.answer(arrival, request));
        // A panic is caught here and not by the one who awaits: after a hang-up nobody does.
        let answered = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await;
        match answered {
            Ok(reply) => {
                log(&reply, started);
                wire::response(&reply)
            }
            Err(panic) => {
                log_panic(arrival.id, started, panic);
                wire::broken()
            }
        }
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
    lookup: Option<Pin<Box<dyn Future<Output = Response<Bytes>> + Send>>>,
}

impl Future for Answering {
    type Output = Response<Bytes>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Bytes>> {
        let Some(lookup) = &mut self.lookup else {
            return Poll::Pending; // polled after its end
        };
        let polled = lookup.as_mut().poll(cx);
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

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("is_finished", &self.lookup.is_none()).finish()
    }
}

/// One event a lookup, and never an email, a key or a profile in it.
fn log(reply: &Reply, started: Instant) {
    let lookup_id = reply.lookup_id;
    let workspace = reply.workspace.as_ref().map(WorkspaceId::as_str);
    let (outcome, status, credits) = (reply.outcome(), reply.status(), reply.credits_spent);
    let duration_us = us_since(started);
    match &reply.fault {
        None => tracing::info!(
            target: "enrich::lookup", %lookup_id, workspace, outcome, status, credits, duration_us,
        ),
        Some(fault) => tracing::warn!(
            target: "enrich::lookup", %lookup_id, workspace, outcome, status, credits, duration_us,
            fault = chain(fault),
        ),
    }
}

/// The panic's message stays out of the log: it could quote the email.
fn log_panic(lookup_id: LookupId, started: Instant, _: Box<dyn Any + Send>) {
    tracing::error!(
        target: "enrich::lookup", %lookup_id, outcome = "server_error", status = 500,
        duration_us = us_since(started), fault = "panicked",
    );
}

/// An error as the log tells it: it and its sources, outermost first.
fn chain(error: &dyn Error) -> String {
    let texts: Vec<_> = successors(Some(error), |&error| error.source()).map(ToString::to_string).collect();
    texts.join(": ")
}

fn us_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}
