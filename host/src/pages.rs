//! A server of pages and documents: the connections of a server of lookups, with their checks, timeouts and
//! limits, for another service.

use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use rustls::ServerConfig;

use crate::activity::InFlight;
use crate::connection::Connections;
use crate::handler::{Handler, is_chunked, is_well_formed};
use crate::limits::Limits;
use crate::listener::{Acceptor, Listener};
use crate::registry::Registry;
use crate::server::serve_connections;
use crate::shutdown::Shutdown;

/// The configuration of [`serve`].
#[derive(Clone, Debug)]
pub struct Pages<S> {
    /// Answers the requests. It receives the [`Peer`] as an extension, and limits the time and the body of a
    /// request itself.
    pub service: S,
    /// Limits on the connections. A client that does not read a page within [`Limits::idle_timeout`] is
    /// disconnected.
    pub limits: Limits,
    /// The TLS configuration (see [`tls::config`](crate::tls::config)). `None` serves plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    /// See [`Services::is_socket_shared`](crate::Services::is_socket_shared).
    pub is_socket_shared: bool,
}

/// The other end of a request's connection: the client, or a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// Serves connections until `shutdown` resolves, and then shuts down like [`run`](crate::run).
pub async fn serve<L, S, B>(listener: L, pages: Pages<S>, shutdown: impl Future<Output = ()>)
where
    L: Listener,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let Pages { service, limits, tls, is_socket_shared } = pages;
    let phases = Arc::new(Shutdown::new());
    let registry = Registry::new(&limits, phases.clone());
    let mut acceptor = Acceptor::new(listener, registry.clone(), phases.clone(), is_socket_shared);
    let accept = async move || acceptor.accept().await;
    let handler = Arc::new(PageHandler { service, limits, shutdown: phases.clone() });
    let connections = Connections::new(handler, tls, true, phases);
    // The order is that of `run`. Requests that are still in flight are dropped.
    let served = async {
        tokio::join! { biased;
            serve_connections(accept, connections, async {}),
            registry.shut_down_after(shutdown, is_socket_shared),
        }
    };
    let _ = registry.sweep_during(served).await;
}

struct PageHandler<S> {
    service: S,
    limits: Limits,
    shutdown: Arc<Shutdown>,
}

impl<S, B> Handler for PageHandler<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Body = Either<B, Full<Bytes>>;
    type Error = Infallible;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn malformed(&self) -> Option<Response<Bytes>> {
        None
    }

    async fn answer(
        &self,
        mut request: Request<Incoming>,
        in_flight: InFlight,
    ) -> Result<Response<Self::Body>, Infallible> {
        let activity = in_flight.activity();
        let (version, is_chunked) = (request.version(), is_chunked(&request));
        if !is_well_formed(&request, is_chunked, &self.limits) {
            // A reply to HEAD has no body (RFC 9110, 9.3.2). hyper removes a body over HTTP/1.1 only.
            let body = if request.method() == Method::HEAD { "" } else { "bad request\n" };
            let mut response = Response::new(Either::Right(Full::from(body)));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            if version < Version::HTTP_2 {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            return Ok(response);
        }
        // After a complete request, the connection is evicted after those without one.
        activity.set_page(request.body().is_end_stream());
        request.extensions_mut().insert(Peer(activity.peer));
        let Ok(mut response) = self.service.call(request).await;
        activity.set_page(true);
        if (is_chunked || self.shutdown.is_draining()) && version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response.map(Either::Left))
    }
}
