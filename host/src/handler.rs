//! Request handling: checks the head, routes the request and passes it to the endpoint.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use enrich_lib::model::LookupId;
use enrich_lib::refusal::Rejection;
use enrich_lib::wire;
use enrich_tower::{Endpoint, LookupFuture};
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use thiserror::Error;
use tokio::time::timeout;

use crate::activity::{Activity, InFlight};
use crate::client_address::ClientAddress;
use crate::limits::Limits;
use crate::shutdown::Shutdown;

/// Answers the requests of all connections.
pub(crate) trait Handler: Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
    /// The reason to reset a stream.
    type Error: Into<Box<dyn Error + Send + Sync>>;

    fn limits(&self) -> &Limits;

    /// Answers one request, which is in flight until then.
    fn answer(
        &self,
        request: Request<Incoming>,
        in_flight: InFlight,
    ) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;

    /// Returns the reply to a malformed head, or `None` if hyper's own one is sent.
    fn malformed(&self) -> Option<Response<Bytes>>;
}

/// Answers lookups.
pub(crate) struct RequestHandler {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) limits: Limits,
    pub(crate) client_address: Option<ClientAddress>,
    pub(crate) shutdown: Arc<Shutdown>,
}

/// A lookup exceeded [`Limits::lookup_timeout`]. hyper resets its stream.
#[derive(Debug, Error)]
#[error("the lookup timed out; its outcome is unknown")]
pub(crate) struct LookupTimedOut;

impl Handler for RequestHandler {
    type Body = Full<Bytes>;
    type Error = LookupTimedOut;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn malformed(&self) -> Option<Response<Bytes>> {
        // The method is unknown: hyper could not parse the head.
        Some(self.endpoint.reject(&Method::default(), Rejection::Malformed))
    }

    /// The timeout of a lookup on HTTP/1 is that of its connection.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` would store the request twice")]
    fn answer(
        &self,
        mut request: Request<Incoming>,
        in_flight: InFlight,
    ) -> impl Future<Output = Result<Response<Full<Bytes>>, LookupTimedOut>> + Send {
        async move {
            let activity = in_flight.activity();
            let version = request.version();
            let is_chunked = is_chunked(&request);
            let mut is_unread = !request.body().is_end_stream();
            let mut response = match self.check(&request, is_chunked) {
                Err(rejection) => self.endpoint.reject(request.method(), rejection),
                Ok(()) => {
                    // Read even if the key is invalid: an unread body would close the connection, which would
                    // make 401 replies distinguishable.
                    let body = self.endpoint.read_body(request.body_mut()).await;
                    is_unread = body.is_err();
                    let input = self.endpoint.request(request.headers(), body);
                    let input = match &self.client_address {
                        Some(source) => input.from_client(source.of(activity.peer, request.headers())),
                        None => input,
                    };
                    let lookup = self.endpoint.answer(input);
                    // Many requests wait at once, so each keeps only what it needs.
                    drop(request);
                    self.look_up(lookup, version, activity).await?
                }
            };
            // On HTTP/1 the next request starts only after the rest of this one.
            if (is_unread || is_chunked || self.shutdown.is_draining()) && version < Version::HTTP_2 {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response.map(Full::new))
        }
    }
}

impl RequestHandler {
    async fn look_up(
        &self,
        lookup: LookupFuture,
        version: Version,
        activity: &Activity,
    ) -> Result<Response<Bytes>, LookupTimedOut> {
        let (id, is_http1) = (lookup.id(), version < Version::HTTP_2);
        let mut in_flight = activity.begin_lookup(id, is_http1);
        let response = if is_http1 {
            lookup.await
        } else {
            let lookup = Box::pin(timeout(self.limits.lookup_timeout, lookup)).await;
            lookup.map_err(|_| LookupTimedOut).inspect_err(|_| log_lookup_timeout(id))?
        };
        // A 500 may precede the check of the key.
        in_flight.is_authenticated =
            !matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::INTERNAL_SERVER_ERROR);
        Ok(response)
    }

    fn check<B>(&self, request: &Request<B>, is_chunked: bool) -> Result<(), Rejection> {
        if !is_well_formed(request, is_chunked, &self.limits) {
            return Err(Rejection::Malformed);
        }
        wire::route(request.method(), request.uri().path())
    }
}

/// Logs that the client of a lookup receives no reply.
pub(crate) fn log_lookup_timeout(lookup_id: LookupId) {
    tracing::warn!(
        %lookup_id,
        "closed a connection or stream without a reply: the lookup timed out; its outcome is unknown"
    );
}

/// Returns whether a body has chunks. On HTTP/1, hyper reports an exact length for every other body.
///
/// The connection then closes after the reply: hyper drops a Content-Length header next to `chunked`, and a
/// server that receives both "MUST close the connection" (RFC 9112, 6.3).
pub(crate) fn is_chunked<B: Body>(request: &Request<B>) -> bool {
    request.version() < Version::HTTP_2 && request.body().size_hint().exact().is_none()
}

/// Checks what hyper accepts in a head although it is malformed.
pub(crate) fn is_well_formed<B>(request: &Request<B>, is_chunked: bool, limits: &Limits) -> bool {
    let headers = request.headers();
    let is_well_formed = match request.version() {
        Version::HTTP_2 => fits(request, limits) && has_one_authority(request),
        Version::HTTP_10 => has_at_most_one_host(headers),
        _ => has_one_host(headers),
    };
    is_well_formed && (!is_chunked || is_only_chunked(headers))
}

/// Checks an HTTP/2 head against the limits, with the size as defined in RFC 9113, 6.5.2. hyper enforces them
/// on HTTP/1.
fn fits<B>(request: &Request<B>, limits: &Limits) -> bool {
    let line = |name: &str, value_bytes: usize| name.len() + value_bytes + 32;
    let path_bytes = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let lines = request.headers().iter().map(|(name, value)| line(name.as_str(), value.len()));
    let bytes = line(":path", path_bytes) + lines.sum::<usize>();
    request.headers().len() <= limits.head_lines_max && bytes <= limits.head_bytes_max
}

/// "A server SHOULD treat a request as malformed if it contains a Host header field that identifies an entity
/// that differs from the entity in the `:authority` pseudo-header field" (RFC 9113, 8.3.1). A proxy could use
/// one of them and the server the other.
fn has_one_authority<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let Some(authority) = request.uri().authority() else {
        return has_at_most_one_host(headers);
    };
    let mut hosts = headers.get_all(HOST).iter();
    hosts.all(|host| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()))
}

fn has_at_most_one_host(headers: &HeaderMap) -> bool {
    !headers.contains_key(HOST) || has_one_host(headers)
}

/// "A server MUST respond with a 400 status code to any HTTP/1.1 request message that lacks a Host header
/// field and to any request message that contains more than one Host header field line or a Host header field
/// with an invalid field value" (RFC 9112, 3.2).
fn has_one_host(headers: &HeaderMap) -> bool {
    // A linear scan is faster than a lookup by name for a few headers.
    let mut hosts = headers.iter().filter(|(name, _)| **name == HOST);
    let is_valid = |host: &HeaderValue| host.as_bytes().iter().all(|byte| IN_HOST[usize::from(*byte)]);
    hosts.next().is_some_and(|(_, host)| is_valid(host)) && hosts.next().is_none()
}

/// Checks that `chunked` is the only transfer encoding.
///
/// hyper accepts any list that ends with `chunked` and leaves the other encodings in the body. A proxy that
/// parses the list differently would see a different end of the request (request smuggling).
fn is_only_chunked(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    encodings.next().is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"chunked"))
        && encodings.next().is_none()
}

/// The bytes that are valid in a Host header.
const IN_HOST: [bool; 256] = {
    let mut in_host = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        in_host[byte as usize] = !matches!(
            byte,
            b'/' | b'?' | b'#' | b'@' | b'\\' | b',' | b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}'
        );
        byte += 1;
    }
    in_host
};
