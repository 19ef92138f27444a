//! The HTTP mapping: from headers and body to a request, and from a reply to a response. It does no I/O, so
//! that any server can use it.

use std::mem;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::body::{Body, BodyError};
use crate::context::{RequestContext, TraceContext};
use crate::key::{EnrichKeys, KeyFormat};
use crate::lookup::{Outcome, Reply, Request};
use crate::model::LookupId;
use crate::receipt::IdempotencyKey;
use crate::refusal::{Refusal, Rejection};
use crate::window::RateLimitStatus;

/// The path of the only operation (specification 4).
pub const PATH: &str = "/api/v1/person/enrich";

/// The header that identifies the request in the log. Every response has it.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The header with the [reason](Refusal::reason) of a 400, 402 or 502 to a valid key. The [`rejection`] of
/// malformed HTTP, whose key is not read, has none.
pub const ERROR_REASON: HeaderName = HeaderName::from_static("error-reason");

/// The header with the credits that are available after a 200, 402 or 404, if the
/// [policy](crate::lookup::Policy::shows_credits) says so.
pub const CREDITS_AVAILABLE: HeaderName = HeaderName::from_static("credits-available");

/// The description of the operation in OpenAPI 3.1, as JSON. A gateway can serve it.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// The header with the trace of a request (W3C Trace Context).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The header with the state of the systems that a trace has passed (W3C Trace Context).
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
/// Decided: the seconds after which to repeat a request that could not be counted.
const RETRY_AFTER_UNAVAILABLE: HeaderValue = HeaderValue::from_static("1");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Checks that a request is for the only operation.
pub fn route(method: &Method, path: &str) -> Result<(), Rejection> {
    if path != PATH {
        Err(Rejection::UnknownPath)
    } else if method != Method::POST {
        Err(Rejection::WrongMethod)
    } else {
        Ok(())
    }
}

/// Returns the response to a request that does not become a lookup. `request_id` has the form of a lookup's
/// id, so that the log can be searched for either.
///
/// An unknown path results in a 404 with `error` instead of `status` in its body, so that clients cannot
/// mistake it for `not_found`. Another method results in a 405 with an `Allow` header (RFC 9110, 15.5.6).
///
/// The response to HEAD has the length of the body, but no body (RFC 9110, 9.3.2). hyper removes a body over
/// HTTP/1.1 only, and clients of HTTP/2 report one as a protocol error (RFC 9113, 8.1).
pub fn rejection(method: &Method, rejection: Rejection, request_id: LookupId) -> Response<Bytes> {
    let mut response = error(rejection.status(), "invalid_request", request_id);
    if rejection == Rejection::WrongMethod {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    if method == Method::HEAD {
        let body = mem::take(response.body_mut());
        response.headers_mut().insert(CONTENT_LENGTH, body.len().into());
    }
    response
}

/// Creates the input of a lookup from an HTTP request with a key of this library's format. See
/// [`request_with`].
pub fn request(headers: &HeaderMap, body: Body) -> Request {
    request_with(&EnrichKeys, headers, body)
}

/// Creates the input of a lookup from an HTTP request with a key of this format. A wrong content type or a
/// malformed idempotency key replaces the body with an error, which is reported only after the checks of the key
/// and the burst limit. The context has the trace of the request.
pub fn request_with(keys: &(impl KeyFormat + ?Sized), headers: &HeaderMap, body: Body) -> Request {
    let Fields { content_type, authorization, idempotency_key, traceparent, tracestate } =
        Fields::of(headers);
    let trace = traceparent.flatten().and_then(|parent| trace(parent, tracestate.flatten()));
    let idempotency_key =
        idempotency_key.map(|value| value.and_then(|value| IdempotencyKey::parse(value.as_bytes())));
    let body = match content_type {
        Some(Some(value)) if is_json(value) => match idempotency_key {
            Some(None) => Err(BodyError::IdempotencyKey),
            None | Some(Some(_)) => body,
        },
        Some(_) => Err(BodyError::ContentType),
        None => Err(BodyError::MissingContentType),
    };
    Request {
        key: authorization.flatten().and_then(bearer).and_then(|token| keys.digest(token)),
        body,
        idempotency_key: idempotency_key.flatten(),
        context: trace.map(|trace| Arc::new(RequestContext { client: None, trace: Some(trace) })),
    }
}

/// Parses the trace of a request. An invalid `traceparent` is ignored, and with it `tracestate`. A
/// `tracestate` in several lines is dropped.
fn trace(parent: &HeaderValue, state: Option<&HeaderValue>) -> Option<TraceContext> {
    let trace = TraceContext::parse(parent.to_str().ok()?)?;
    let state = state.and_then(|state| state.to_str().ok());
    Some(trace.with_state(state.unwrap_or_default()))
}

/// The headers of a request that a lookup uses. `None` if one is missing, and `Some(None)` if it is repeated.
#[derive(Default)]
struct Fields<'h> {
    content_type: Option<Option<&'h HeaderValue>>,
    authorization: Option<Option<&'h HeaderValue>>,
    idempotency_key: Option<Option<&'h HeaderValue>>,
    traceparent: Option<Option<&'h HeaderValue>>,
    tracestate: Option<Option<&'h HeaderValue>>,
}

impl<'h> Fields<'h> {
    /// Scans all headers once, which takes fewer instructions than a search for each name.
    fn of(headers: &'h HeaderMap) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers {
            let field = match name.as_str() {
                "content-type" => &mut fields.content_type,
                "authorization" => &mut fields.authorization,
                "idempotency-key" => &mut fields.idempotency_key,
                "traceparent" => &mut fields.traceparent,
                "tracestate" => &mut fields.tracestate,
                _ => continue,
            };
            *field = Some(field.is_none().then_some(value));
        }
        fields
    }
}

/// Parses `Authorization: Bearer <API_KEY>` (specification 5.1). The scheme is case-insensitive (RFC 9110,
/// 11.1).
fn bearer(credentials: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = credentials.as_bytes().split_first_chunk::<{ b"Bearer ".len() }>()?;
    let spaces = token.iter().take_while(|byte| **byte == b' ').count();
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| &token[spaces..])
}

/// Checks for `application/json` with any parameters, because JSON is always UTF-8 (RFC 8259, 8.1 and 11).
fn is_json(content_type: &HeaderValue) -> bool {
    let essence = || content_type.to_str().ok()?.split(';').next();
    content_type == JSON
        || essence().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// Creates the response to a lookup: status, headers and body. The caller waits for [`Reply::delay`].
pub fn response(reply: &Reply) -> Response<Bytes> {
    let mut text = Text::new();
    // No escapes are needed: ids are hex digits, and profile URLs have neither quotes nor backslashes.
    let id = reply.lookup_id.text();
    let request_id = text.put(&[&id]);
    let id = reply.paid_by.map_or(id, |payer| payer.text());
    let rate_limit = reply.rate_limit.map(|RateLimitStatus { limit, remaining, reset_seconds }| {
        [limit.into(), remaining.into(), reset_seconds].map(|number| text.put_number(number))
    });
    let body = match &reply.result {
        // Specification 2.2, 2.3 and 2.4.
        Ok(Outcome::Found(url)) => text.put(&[
            br#"{"lookup_id":""#,
            &id,
            br#"","status":"found","profile":{"linkedin_url":""#,
            url.as_str().as_bytes(),
            br#""}}"#,
        ]),
        Ok(Outcome::NotFound) => text.put(&[br#"{"lookup_id":""#, &id, br#"","status":"not_found"}"#]),
        Err(refusal) => text.put(&error_parts(refusal.code())),
    };
    let text = Bytes::from(text.0);
    let value = |range: Range<usize>| HeaderValue::from_maybe_shared(text.slice(range)).unwrap_or(EMPTY);
    let mut headers = match rate_limit.clone() {
        None => json_headers(value(request_id)),
        Some([limit, remaining, reset]) => {
            with_rate_limit([JSON, value(request_id), value(limit), value(remaining), value(reset)])
        }
    };
    match (&reply.result, rate_limit) {
        (Err(Refusal::RateLimited), Some([.., reset])) => {
            headers.insert(RETRY_AFTER, value(reset));
        }
        (Err(Refusal::RateLimitUnavailable), _) => {
            headers.insert(RETRY_AFTER, RETRY_AFTER_UNAVAILABLE);
        }
        // RFC 6750, 3, without its `error`: missing, unknown and revoked keys look alike.
        (Err(Refusal::Unauthorized), _) => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        (Err(refusal), _) => {
            let reason = refusal.reason().map(HeaderValue::from_static);
            headers.extend(reason.map(|reason| (ERROR_REASON, reason)));
        }
        (Ok(_), _) => {}
    }
    if let Some(credits) = reply.credits_available {
        headers.insert(CREDITS_AVAILABLE, credits.into());
    }
    json(reply.status(), headers, text.slice(body))
}

/// A header value without text.
const EMPTY: HeaderValue = HeaderValue::from_static("");

/// Returns the headers of specification 8.2, with values in the order of the names. Every reply after the
/// count has them, so that clients can pace themselves.
fn with_rate_limit(mut values: [HeaderValue; 5]) -> HeaderMap {
    const NAMES: [HeaderName; 5] =
        [CONTENT_TYPE, REQUEST_ID, RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET];
    /// The headers without values, and the place of each in `NAMES`. Cloning takes less than half the time of
    /// five insertions, and keeps the order of iteration.
    static TEMPLATE: LazyLock<(HeaderMap, Vec<usize>)> = LazyLock::new(|| {
        let headers: HeaderMap = NAMES.map(|name| (name, EMPTY)).into_iter().collect();
        let place = |name: &HeaderName| NAMES.iter().position(|other| other == name);
        let places = headers.keys().filter_map(place).collect();
        (headers, places)
    });
    let (headers, places) = &*TEMPLATE;
    let mut headers = headers.clone();
    for (value, place) in headers.values_mut().zip(places) {
        *value = mem::replace(&mut values[*place], EMPTY);
    }
    headers
}

fn error(status: u16, code: &str, request_id: LookupId) -> Response<Bytes> {
    let request_id = HeaderValue::from_bytes(&request_id.text()).unwrap_or(EMPTY);
    json(status, json_headers(request_id), error_parts(code).concat().into())
}

const fn error_parts(code: &str) -> [&[u8]; 3] {
    [br#"{"error":""#, code.as_bytes(), br#""}"#]
}

fn json_headers(request_id: HeaderValue) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, JSON), (REQUEST_ID, request_id)])
}

fn json(status: u16, headers: HeaderMap, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

/// The body and the header values of a reply, in one allocation.
struct Text(Vec<u8>);

impl Text {
    /// Sufficient for most replies. The buffer grows for others.
    const BYTES: usize = 256;

    fn new() -> Self {
        Self(Vec::with_capacity(Self::BYTES))
    }

    /// Appends the parts and returns their place.
    fn put(&mut self, parts: &[&[u8]]) -> Range<usize> {
        let start = self.0.len();
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        start..self.0.len()
    }

    fn put_number(&mut self, number: u64) -> Range<usize> {
        self.put(&[itoa::Buffer::new().format(number).as_bytes()])
    }
}
