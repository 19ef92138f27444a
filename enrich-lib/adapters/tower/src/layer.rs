//! The tower layer and its service.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use enrich_lib::drive::Service;
use enrich_lib::observe::Observer;
use enrich_lib::wire;
use http::{HeaderMap, Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;

use crate::arrivals::Arrivals;
use crate::endpoint::{Answering, Endpoint};
use crate::gather::{BodyLimits, Gathering};
use crate::lookups::Lookups;
use crate::response::ResponseBody;

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

    /// Sets the observer, which receives one event per lookup.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        Arc::make_mut(&mut self.endpoint).observer = observer;
        self
    }

    /// Returns the lookups in flight in all services of this layer and its clones. A gateway waits for them before it exits.
    pub fn lookups(&self) -> Lookups {
        self.endpoint.lookups.clone()
    }
}

impl<S> Layer<S> for EnrichLayer {
    type Service = Enrich<S>;

    fn layer(&self, inner: S) -> Enrich<S> {
        Enrich { inner, endpoint: self.endpoint.clone() }
    }
}

/// A service that answers `POST /api/v1/person/enrich`, and other methods on this path with 405. Requests for other paths
/// and their responses pass unchanged to and from the inner service.
#[derive(Clone, Debug)]
pub struct Enrich<S> {
    inner: S,
    endpoint: Arc<Endpoint>,
}

impl<S, B, R> tower_service::Service<Request<B>> for Enrich<S>
where
    S: tower_service::Service<Request<B>, Response = Response<R>>,
    B: http_body::Body,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<B, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let stage = if request.uri().path() != wire::PATH {
            Stage::Inner { future: self.inner.call(request) }
        } else if let Err(response) = wire::route(request.method(), request.uri().path()) {
            Stage::Refused { response: Some(response) }
        } else {
            let (head, body) = request.into_parts();
            let (gathering, endpoint) = (self.endpoint.gather(body), self.endpoint.clone());
            Stage::Gathering { gathering, headers: head.headers, endpoint }
        };
        ResponseFuture { stage }
    }
}

pin_project! {
    /// The response future of [`Enrich`]. If it is dropped after the lookup has begun, the lookup is completed nevertheless.
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct ResponseFuture<B, F> {
        #[pin]
        stage: Stage<B, F>,
    }
}

pin_project! {
    #[project = StageProjected]
    enum Stage<B, F> {
        Inner { #[pin] future: F },
        Refused { response: Option<Box<Response<Bytes>>> },
        Gathering { #[pin] gathering: Gathering<B>, headers: HeaderMap, endpoint: Arc<Endpoint> },
        Answering { answering: Answering },
    }
}

impl<B, F, R, E> Future for ResponseFuture<B, F>
where
    B: http_body::Body,
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let answering = match stage.as_mut().project() {
                StageProjected::Inner { future } => {
                    return future.poll(cx).map_ok(|response| response.map(ResponseBody::inner));
                }
                StageProjected::Refused { response } => match response.take() {
                    Some(response) => return Poll::Ready(Ok(response.map(ResponseBody::ours))),
                    None => return Poll::Pending, // polled after completion
                },
                StageProjected::Gathering { gathering, headers, endpoint } => {
                    // Reads the body even if the key is invalid. Otherwise, a client could distinguish the reasons of a 401.
                    let body = ready!(gathering.poll(cx));
                    endpoint.answer(headers, body)
                }
                StageProjected::Answering { answering } => {
                    let response = ready!(Pin::new(answering).poll(cx));
                    return Poll::Ready(Ok(response.map(ResponseBody::ours)));
                }
            };
            stage.set(Stage::Answering { answering });
        }
    }
}

/// Omits the request, which contains a key and an email.
impl<B, F> fmt::Debug for ResponseFuture<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
