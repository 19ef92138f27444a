//! The tower layer and its service.

use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use enrich_lib::drive::Service;
use enrich_lib::key::KeyFormat;
use enrich_lib::observe::Observer;
use enrich_lib::wire;
use http::{Request, Response};
use http_body_util::{Either, Full};
use pin_project_lite::pin_project;
use tower_layer::Layer;

use crate::arrivals::Arrivals;
use crate::body::BodyLimits;
use crate::endpoint::Endpoint;

/// A layer that wraps a service in [`Enrich`].
#[derive(Clone, Debug)]
pub struct EnrichLayer {
    endpoint: Arc<Endpoint>,
}

impl EnrichLayer {
    /// Creates a layer with the system clock and the default limits.
    pub fn new(service: Service) -> Self {
        Self { endpoint: Arc::new(Endpoint::new(service)) }
    }

    /// Sets the limits on a request's body.
    #[must_use]
    pub fn limits(mut self, body: BodyLimits) -> Self {
        Arc::make_mut(&mut self.endpoint).body = body;
        self
    }

    /// Sets the source of time and randomness.
    #[must_use]
    pub fn arrivals(mut self, arrivals: Arc<dyn Arrivals>) -> Self {
        Arc::make_mut(&mut self.endpoint).arrivals = arrivals;
        self
    }

    /// Sets the format of API keys, for a gateway with keys of its own.
    #[must_use]
    pub fn key_format(mut self, format: Arc<dyn KeyFormat>) -> Self {
        Arc::make_mut(&mut self.endpoint).key_format = format;
        self
    }

    /// Sets the observer, which receives one event per lookup. It replaces the default one, which logs failed
    /// ports. A pair of observers calls both.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        Arc::make_mut(&mut self.endpoint).observer = observer;
        self
    }

    /// Waits for the lookups in flight in all services of this layer and its clones, also for those of disconnected
    /// clients. A gateway calls it after its server has stopped, with a timeout, so that every hold is settled.
    pub async fn drain(&self) {
        self.endpoint.lookups.close();
        self.endpoint.lookups.wait().await;
    }
}

impl<S> Layer<S> for EnrichLayer {
    type Service = Enrich<S>;

    fn layer(&self, inner: S) -> Enrich<S> {
        Enrich { inner, endpoint: self.endpoint.clone() }
    }
}

/// A service that answers `POST /api/v1/person/enrich`, and other methods on this path with 405. Requests for
/// other paths and their responses pass unchanged to and from the inner service.
///
/// A [`Workspace`](enrich_lib::window::Workspace) in the extensions of a request replaces its key: see
/// [`Endpoint::answer_http`].
#[derive(Clone, Debug)]
pub struct Enrich<S> {
    inner: S,
    endpoint: Arc<Endpoint>,
}

/// The body of a response of [`Enrich`]: its own, or that of the inner service.
pub type ResponseBody<B> = Either<Full<Bytes>, B>;

impl<S, B, R> tower_service::Service<Request<B>> for Enrich<S>
where
    S: tower_service::Service<Request<B>, Response = Response<R>>,
    B: http_body::Body<Data: Send> + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let source = if request.uri().path() != wire::PATH {
            Source::Inner { future: self.inner.call(request) }
        } else if let Err(rejection) = wire::route(request.method(), request.uri().path()) {
            Source::Own { future: Box::pin(ready(self.endpoint.reject(request.method(), rejection))) }
        } else {
            let (endpoint, (head, body)) = (self.endpoint.clone(), request.into_parts());
            let response = async move {
                // Reads the body even if the key is invalid. Otherwise, a client could distinguish the
                // reasons of a 401.
                let body = endpoint.read_body(body).await;
                endpoint.answer_http(&head, body).await
            };
            Source::Own { future: Box::pin(response) }
        };
        ResponseFuture { source }
    }
}

pin_project! {
    /// The response future of [`Enrich`]. If it is dropped after the lookup has begun, the lookup is
    /// completed nevertheless.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        source: Source<F>,
    }
}

pin_project! {
    #[project = SourceProjected]
    enum Source<F> {
        Inner { #[pin] future: F },
        Own { future: Pin<Box<dyn Future<Output = Response<Bytes>> + Send>> },
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().source.project() {
            SourceProjected::Inner { future } => {
                future.poll(cx).map_ok(|response| response.map(Either::Right))
            }
            SourceProjected::Own { future } => future
                .as_mut()
                .poll(cx)
                .map(|response| Ok(response.map(|body| Either::Left(Full::new(body))))),
        }
    }
}

/// Omits the request, which contains a key and an email.
impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
