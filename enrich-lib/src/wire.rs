//! The HTTP mapping: from headers and body to a request, and from a reply to a response. It does no I/O, so that any server
//! can use it.

use std::sync::{Arc, LazyLock};

use bytes::{Bytes, BytesMut};
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::body::{Body, BodyError};
use crate::context::{RequestContext, TraceContext};
use crate::key::KeyDigest;
use crate::lookup::{Outcome, Reply, Request};
use crate::model::LookupId;
use crate::refusal::{Refusal, Rejection};
use crate::window::RateLimitStatus;

/// The path of the only operation (specification 4).
pub const PATH: &str = "/api/v1/person/enrich";

/// The header that identifies the request in the log. Every response has it.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

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

/// Returns the response to a request that does not become a lookup. `request_id` has the form of a lookup's id, so that the
/// log can be searched for either.
///
/// An unknown path results in a 404 with `error` instead of `status` in its body, so that clients cannot mistake it for
/// `not_found`. Another method results in a 405 with an `Allow` header (RFC 9110, 15.5.6).
pub fn rejection(rejection: Rejection, request_id: LookupId) -> Response<Bytes> {
    let mut response = error(rejection.status(), "invalid_request", request_id);
    if rejection == Rejection::WrongMethod {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

/// Returns the response after an internal failure: 500 `server_error`.
pub fn internal_error(request_id: LookupId) -> Response<Bytes> {
    error(Refusal::ServerError.status(), Refusal::ServerError.code(), request_id)
}

/// Creates the input of a lookup from an HTTP request. A wrong content type replaces the body with an error, which is
/// reported only after the checks of the key and the burst limit. The context has the trace of the request.
pub fn request(headers: &HeaderMap, body: Body) -> Request {
    let is_json = only(headers, &CONTENT_TYPE).is_some_and(is_json);
    Request {
        key: only(headers, &AUTHORIZATION).and_then(bearer_key),
        body: if is_json { body } else { Err(BodyError::ContentType) },
        context: trace(headers).map(|trace| Arc::new(RequestContext { client: None, trace: Some(trace) })),
    }
}

/// Reads the trace of a request. An invalid `traceparent` is ignored, and with it `tracestate`. A `tracestate` in several
/// lines is dropped.
fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    let trace = TraceContext::parse(only(headers, &TRACEPARENT)?.to_str().ok()?)?;
    let state = only(headers, &TRACESTATE).and_then(|state| state.to_str().ok());
    Some(trace.with_state(state.unwrap_or_default()))
}

/// Returns the value of a header, or `None` if it is missing or repeated.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Parses `Authorization: Bearer <API_KEY>` (specification 5.1). The scheme is case-insensitive (RFC 9110, 11.1).
fn bearer_key(credentials: &HeaderValue) -> Option<KeyDigest> {
    let (scheme, token) = credentials.as_bytes().split_first_chunk::<{ b"Bearer ".len() }>()?;
    let spaces = token.iter().take_while(|byte| **byte == b' ').count();
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| KeyDigest::of_key(&token[spaces..]))?
}

/// Checks for `application/json` with any parameters, because JSON is always UTF-8 (RFC 8259, 8.1 and 11).
fn is_json(content_type: &HeaderValue) -> bool {
    let essence = || content_type.to_str().ok()?.split(';').next();
    content_type == JSON
        || essence().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// Creates the response to a lookup: status, headers and body.
pub fn response(reply: &Reply) -> Response<Bytes> {
    let mut text = Text::new();
    // No escapes are needed: ids are hex digits, and profile URLs have neither quotes nor backslashes.
    let id = reply.lookup_id.text();
    let body = match &reply.result {
        // Specification 2.2, 2.3 and 2.4.
        Ok(Outcome::Found(url)) => {
            let url = url.as_str().as_bytes();
            text.take(&[
                br#"{"lookup_id":""#,
                &id,
                br#"","status":"found","profile":{"linkedin_url":""#,
                url,
                br#""}}"#,
            ])
        }
        Ok(Outcome::NotFound) => text.take(&[br#"{"lookup_id":""#, &id, br#"","status":"not_found"}"#]),
        Err(refusal) => text.take(&error_parts(refusal.code())),
    };
    let mut headers = match reply.rate_limit {
        None => json_headers(text.value(&id)),
        Some(rate_limit) => with_rate_limit(&id, rate_limit, &mut text),
    };
    match (&reply.result, reply.rate_limit) {
        (Err(Refusal::RateLimited), Some(rate_limit)) => {
            headers.insert(RETRY_AFTER, text.number(rate_limit.reset_seconds));
        }
        (Err(Refusal::RateLimitUnavailable), _) => {
            headers.insert(RETRY_AFTER, RETRY_AFTER_UNAVAILABLE);
        }
        // RFC 6750, 3, without its `error`: missing, unknown and revoked keys look alike.
        (Err(Refusal::Unauthorized), _) => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        _ => {}
    }
    json(reply.status(), headers, body)
}

/// Returns the headers of specification 8.2. Every reply after the count has them, so that clients can pace themselves.
fn with_rate_limit(id: &[u8], rate_limit: RateLimitStatus, text: &mut Text) -> HeaderMap {
    /// Cloning takes less than half the time of five insertions.
    static HEADERS: LazyLock<HeaderMap> = LazyLock::new(|| {
        let mut headers = json_headers(HeaderValue::from_static(""));
        for name in [RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET] {
            headers.insert(name, HeaderValue::from_static("0"));
        }
        headers
    });
    let mut headers = HEADERS.clone();
    for (name, value) in &mut headers {
        if *name == REQUEST_ID {
            *value = text.value(id);
        } else if *name == RATELIMIT_LIMIT {
            *value = text.number(rate_limit.limit.into());
        } else if *name == RATELIMIT_REMAINING {
            *value = text.number(rate_limit.remaining.into());
        } else if *name == RATELIMIT_RESET {
            *value = text.number(rate_limit.reset_seconds);
        }
    }
    headers
}

fn error(status: u16, code: &str, request_id: LookupId) -> Response<Bytes> {
    let mut text = Text::new();
    let body = text.take(&error_parts(code));
    json(status, json_headers(text.value(&request_id.text())), body)
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

/// A buffer for the body and the header values of a reply, in one allocation.
struct Text(BytesMut);

impl Text {
    /// Sufficient for most replies. The buffer grows for others.
    const BYTES: usize = 256;

    fn new() -> Self {
        Self(BytesMut::with_capacity(Self::BYTES))
    }

    fn take(&mut self, parts: &[&[u8]]) -> Bytes {
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.split().freeze()
    }

    fn number(&mut self, number: u64) -> HeaderValue {
        self.value(itoa::Buffer::new().format(number).as_bytes())
    }

    fn value(&mut self, ascii: &[u8]) -> HeaderValue {
        let text = self.take(&[ascii]);
        HeaderValue::from_maybe_shared(text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}
