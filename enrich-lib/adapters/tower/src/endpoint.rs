//! The only operation, for any server: reads a body and completes the lookup even if its client disconnects.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use enrich_lib::body::Body;
use enrich_lib::drive::Service;
use enrich_lib::key::{EnrichKeys, KeyDigest, KeyFormat, KeyId};
use enrich_lib::lookup::Request;
use enrich_lib::model::LookupId;
use enrich_lib::observe::{Observer, catch_panic};
use enrich_lib::ports::{Keys, async_trait};
use enrich_lib::refusal::{PortError, Rejection};
use enrich_lib::window::Workspace;
use enrich_lib::wire;
use http::request::Parts;
use http::{HeaderMap, Method, Response};
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::arrivals::{Arrivals, SystemArrivals};
use crate::body::{BodyFuture, BodyLimits};

/// An endpoint that answers requests for the only operation, independent of the server.
/// [`EnrichLayer`](crate::EnrichLayer) contains one. A server without tower uses it directly, after it has
/// [routed](wire::route) a request.
#[derive(Clone, derive_more::Debug)]
#[debug("Endpoint {{ service: {service:?}, body: {body:?}, lookups: {}, .. }}", lookups.len())]
#[non_exhaustive]
pub struct Endpoint {
    /// Runs the lookups.
    pub service: Service,
    /// The source of time and randomness.
    pub arrivals: Arc<dyn Arrivals>,
    /// The format of API keys. The default is that of the library.
    pub key_format: Arc<dyn KeyFormat>,
    /// Receives one event per lookup. The default is [`TracingObserver`](crate::TracingObserver) with the
    /// feature `tracing`, and otherwise discards events.
    pub observer: Arc<dyn Observer>,
    /// The limits on a request's body.
    pub body: BodyLimits,
    /// The lookups in flight, including those whose clients have disconnected. Close the tracker and wait for
    /// it after the server has stopped and all connections are closed, with a timeout, so that every hold is settled: a
    /// closed tracker still accepts lookups.
    pub lookups: TaskTracker,
}

impl Endpoint {
    /// Creates an endpoint with the system clock and the default limits.
    pub fn new(service: Service) -> Self {
        let (arrivals, body) = (Arc::new(SystemArrivals), BodyLimits::default());
        #[cfg(feature = "tracing")]
        let observer = Arc::new(crate::TracingObserver::default());
        #[cfg(not(feature = "tracing"))]
        let observer = Arc::new(());
        let key_format = Arc::new(EnrichKeys);
        Self { service, arrivals, key_format, observer, body, lookups: TaskTracker::new() }
    }

    /// Reads a request's body. Pass the result to [`answer_http`](Self::answer_http) even if it is an error
    /// or the key is invalid: the lookup reports an invalid body only after the checks that come before it.
    ///
    /// Requires a tokio runtime with its timer enabled.
    pub fn read_body<B: http_body::Body>(&self, body: B) -> BodyFuture<B> {
        BodyFuture::new(body, self.body)
    }

    /// Answers a request that does not become a lookup, for example one that [`wire::route`] rejects. It
    /// receives an id too, which is reported to the observer.
    pub fn reject(&self, method: &Method, rejection: Rejection) -> Response<Bytes> {
        let request_id = self.arrivals.arrive().id;
        // As in a lookup, a panic of the observer does not change the reply.
        catch_panic(|| self.observer.rejected(request_id, rejection));
        wire::rejection(method, rejection, request_id)
    }

    /// Returns the request with these headers. Its key has the format of this endpoint.
    pub fn request(&self, headers: &HeaderMap, body: Body) -> Request {
        wire::request_with(&*self.key_format, headers, body)
    }

    /// Answers one HTTP request with the result of [`read_body`](Self::read_body).
    ///
    /// A [`Workspace`] in the extensions of the head replaces the key: the gateway has authenticated the
    /// request, and neither the [key format](Self::key_format) nor [`Keys`](enrich_lib::ports::Keys) is called. A
    /// [`KeyId`] beside it identifies the key in events and usage; the default is 0. A client cannot set an extension.
    ///
    /// A panic of the [key format](Self::key_format) results in 500 `server_error`, like that of a port.
    ///
    /// Requires a tokio runtime with its timer enabled: a test key may ask for a slow reply.
    pub fn answer_http(self: &Arc<Self>, head: &Parts, body: Body) -> LookupFuture {
        if let Some(workspace) = head.extensions.get::<Workspace>() {
            let key = head.extensions.get::<KeyId>().copied().unwrap_or(KeyId::from_number(0));
            let request = wire::request_with(&Unread, &head.headers, body).authenticated(key);
            let service = self.service.for_workspace(workspace.clone());
            return Arc::new(Self { service, ..(**self).clone() }).answer(request);
        }
        let request = catch_panic(|| self.request(&head.headers, body));
        let Some(request) = request else {
            let mut endpoint = (**self).clone();
            endpoint.service.keys = Arc::new(PanickedFormat);
            let request = Request::new(None, Ok(Bytes::new()));
            return Arc::new(endpoint).answer(request.authenticated(KeyId::from_number(0)));
        };
        self.answer(request)
    }

    /// Answers one request, which [`request`](Self::request) creates.
    ///
    /// If the future is dropped after it was polled, a task on the tokio runtime completes the lookup. The
    /// runtime needs its timer, as for [`answer_http`](Self::answer_http).
    pub fn answer(self: &Arc<Self>, request: Request) -> LookupFuture {
        let (endpoint, arrival) = (self.clone(), self.arrivals.arrive());
        let lookup = async move {
            let Self { service, observer, .. } = &*endpoint;
            // A block, so that the future has no space for the reply beside its response.
            let (response, delay) = {
                let reply = service.answer_with(arrival, request, &**observer).await;
                (wire::response(&reply), reply.delay)
            };
            // Boxed, so that the futures of all other lookups have no space for the timer.
            if delay.is_zero() { response } else { Box::pin(delayed(response, delay)).await }
        };
        let lookup = Some(Box::pin(self.lookups.track_future(lookup)) as Pin<Box<_>>);
        LookupFuture { id: arrival.id, endpoint: self.clone(), runtime: None, lookup }
    }
}

/// The format of a key that the gateway has replaced.
struct Unread;

impl KeyFormat for Unread {
    fn digest(&self, _: &[u8]) -> Option<KeyDigest> {
        None
    }
}

/// The keys of a request whose key format has panicked.
struct PanickedFormat;

#[async_trait]
impl Keys for PanickedFormat {
    async fn find(&self, _: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        Err(PortError::new("the key format panicked"))
    }
}

async fn delayed(response: Response<Bytes>, delay: Duration) -> Response<Bytes> {
    sleep(delay).await;
    response
}

/// The future of a response, whose lookup completes even if the future is dropped. See [`Endpoint::answer`].
///
/// The lookup runs in the awaiting task, which saves spawning one. After a drop, the rest runs in a task that is
/// spawned on the runtime of the first poll. A lookup that was never polled does not start.
#[derive(derive_more::Debug)]
#[debug("LookupFuture {{ id: {id:?}, is_finished: {} }}", lookup.is_none())]
#[must_use = "futures do nothing unless polled"]
pub struct LookupFuture {
    id: LookupId,
    endpoint: Arc<Endpoint>,
    /// The runtime of the first poll.
    runtime: Option<Handle>,
    /// `None` after completion.
    lookup: Option<Pin<Box<dyn Future<Output = Response<Bytes>> + Send>>>,
}

impl LookupFuture {
    /// Returns the id of the lookup.
    pub fn id(&self) -> LookupId {
        self.id
    }
}

impl Future for LookupFuture {
    type Output = Response<Bytes>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Bytes>> {
        if self.runtime.is_none() {
            self.runtime = Handle::try_current().ok();
        }
        let Some(lookup) = &mut self.lookup else {
            return Poll::Pending; // polled after completion
        };
        let polled = lookup.as_mut().poll(cx);
        if polled.is_ready() {
            self.lookup = None;
        }
        polled
    }
}

impl Drop for LookupFuture {
    fn drop(&mut self) {
        let (Some(lookup), Some(runtime)) = (self.lookup.take(), self.runtime.take()) else { return };
        catch_panic(|| self.endpoint.observer.client_gone(self.id));
        runtime.spawn(lookup);
    }
}

#[cfg(test)]
mod tests {
    use enrich_lib::key::ApiKey;
    use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};

    use super::*;

    /// The allocator has a slower path for larger blocks, and thousands of lookups wait at once.
    #[test]
    fn a_lookup_takes_less_than_a_kibibyte() {
        let (keys, windows) = (Arc::<KeyTable>::default(), Arc::<WindowTable>::default());
        let (credits, people) = (Arc::<AccountTable>::default(), Arc::<Directory>::default());
        let service = Service::new(keys, windows, credits, people);
        let request = Request::new(Some(ApiKey::generate(|| 1).digest()), Ok(Bytes::new()));
        let lookup = Arc::new(Endpoint::new(service)).answer(request).lookup.take().unwrap();
        assert!(size_of_val(&*lookup) <= 1_024, "{} bytes", size_of_val(&*lookup));
    }
}
