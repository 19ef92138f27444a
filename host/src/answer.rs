//! One request: routed, its body gathered, looked up, logged.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use enrich_lib::body::{Body, BodyFault};
use enrich_lib::drive::Service;
use enrich_lib::lookup::{Reply, Request};
use enrich_lib::model::{Arrival, LookupId, WorkspaceId};
use enrich_lib::wire;
use http::header::{CONNECTION, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, Version};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::arrivals::Arrivals;
use crate::causes::chain;
use crate::limits::Limits;
use crate::outlive::outlive;

/// Answers requests, whichever connections they come from.
pub(crate) struct Desk {
    pub(crate) service: Service,
    pub(crate) arrivals: Arc<dyn Arrivals>,
    pub(crate) limits: Limits,
    /// The lookups in flight. Each outlives a client that hangs up, so that its hold is settled.
    pub(crate) lookups: TaskTracker,
}

impl Desk {
    pub(crate) async fn answer(&self, request: hyper::Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let mut is_unread = !body.is_end_stream();
        let mut response = match self.check(&head) {
            Err(response) => *response,
            Ok(()) => {
                // A stranger's too: with it unread the connection would end, and a prober could tell 401s apart.
                let body = self.gather(body).await;
                is_unread = body.is_err();
                self.look_up(wire::request(&head.headers, body)).await
            }
        };
        // On HTTP/1 the next request could only be found behind the rest of this one.
        if is_unread && head.version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response.map(Full::new)
    }

    fn check(&self, head: &Parts) -> Result<(), Box<Response<Bytes>>> {
        let is_well_formed = match head.version {
            Version::HTTP_2 => fits(head, &self.limits),
            Version::HTTP_10 if !head.headers.contains_key(HOST) => true,
            _ => has_one_host(&head.headers),
        };
        if !is_well_formed {
            return Err(Box::new(wire::malformed()));
        }
        wire::route(&head.method, head.uri.path())
    }

    async fn gather(&self, body: Incoming) -> Body {
        let bytes_max = self.limits.body_bytes_max;
        if body.size_hint().lower() > bytes_max as u64 {
            return Err(BodyFault::TooLarge);
        }
        match timeout(self.limits.body_time_max, Limited::new(body, bytes_max).collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyFault::TooLarge),
            Ok(Err(_)) => Err(BodyFault::CutOff),
            Err(_) => Err(BodyFault::TooSlow),
        }
    }

    async fn look_up(&self, request: Request) -> Response<Bytes> {
        let lookup = look_up(self.service.clone(), self.arrivals.arrive(), request);
        outlive(lookup, &self.lookups).await
    }
}

/// HTTP/2's limits on a head, counted as RFC 9113, 6.5.2 counts it. On HTTP/1 hyper holds them.
fn fits(head: &Parts, limits: &Limits) -> bool {
    let line = |name: &str, value_bytes: usize| name.len() + value_bytes + 32;
    let path_bytes = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    let lines = head.headers.iter().map(|(name, value)| line(name.as_str(), value.len()));
    let bytes = line(":path", path_bytes) + lines.sum::<usize>();
    head.headers.len() <= limits.head_lines_max && bytes <= limits.head_bytes_max
}

/// "A server MUST respond with a 400 status code to any HTTP/1.1 request message that lacks a Host header field and to
/// any request message that contains more than one Host header field line or a Host header field with an invalid
/// field value" (RFC 9112, 3.2).
fn has_one_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let is_valid = |host: &HeaderValue| {
        host.as_bytes().iter().all(|c| c.is_ascii_graphic() && !b"/?#@\\,\"<>^`{|}".contains(c))
    };
    hosts.next().is_some_and(is_valid) && hosts.next().is_none()
}

async fn look_up(service: Service, arrival: Arrival, request: Request) -> Response<Bytes> {
    let started = Instant::now();
    let mut answer = pin!(service.answer(arrival, request));
    // A panic is caught here and not by the one who awaits: after a hang-up nobody does.
    let answered = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => std::task::Poll::Ready(Err(panic)),
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

fn us_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}
