//! HTTP at the edge: headers and body in, a whole response out. No I/O: any server can use it.

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::body::{Body, BodyFault};
use crate::key::KeyDigest;
use crate::lookup::{Outcome, Reply, Request};
use crate::refusal::Refusal;
use crate::window::Standing;

/// The path of the one operation (specification 4).
pub const PATH: &str = "/api/v1/person/enrich";

const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Whether a request is for the one operation; if not, the answer to give.
///
/// An unknown path is a 404 whose body can't be taken for `not_found`: it has `error`, not `status`. Another method
/// is a 405 that says which one is allowed (RFC 9110, 15.5.6).
pub fn route(method: &Method, path: &str) -> Result<(), Box<Response<Bytes>>> {
    if path != PATH {
        Err(Box::new(error(StatusCode::NOT_FOUND, "invalid_request")))
    } else if method != Method::POST {
        let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "invalid_request");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        Err(Box::new(response))
    } else {
        Ok(())
    }
}

/// The answer to what is no HTTP request: 400 `invalid_request`.
pub fn malformed() -> Response<Bytes> {
    error(StatusCode::BAD_REQUEST, "invalid_request")
}

/// The answer when the service itself broke down: 500 `server_error`.
pub fn broken() -> Response<Bytes> {
    error(StatusCode::INTERNAL_SERVER_ERROR, "server_error")
}

/// What the chain takes, of what HTTP brought. A wrong content type takes the body's place: it matters when the
/// body does, after the key and the burst.
pub fn request(headers: &HeaderMap, body: Body) -> Request {
    let (mut authorization, mut content_type) = (Only::None, Only::None);
    // Of a few headers, to look at all is faster than two look-ups.
    for (name, value) in headers {
        if *name == AUTHORIZATION {
            authorization.add(value);
        } else if *name == CONTENT_TYPE {
            content_type.add(value);
        }
    }
    let is_json = content_type.value().is_some_and(is_json);
    Request {
        key: authorization.value().and_then(bearer_key),
        body: if is_json { body } else { Err(BodyFault::ContentType) },
    }
}

/// A header that may stand only once.
enum Only<'h> {
    None,
    One(&'h HeaderValue),
    Several,
}

impl<'h> Only<'h> {
    fn add(&mut self, value: &'h HeaderValue) {
        *self = if let Self::None = self { Self::One(value) } else { Self::Several };
    }

    fn value(self) -> Option<&'h HeaderValue> {
        if let Self::One(value) = self { Some(value) } else { None }
    }
}

/// `Authorization: Bearer <API_KEY>` (specification 5.1); the scheme in any case (RFC 9110, 11.1).
fn bearer_key(credentials: &HeaderValue) -> Option<KeyDigest> {
    let (scheme, token) = credentials.as_bytes().split_first_chunk::<{ b"Bearer ".len() }>()?;
    let spaces = token.iter().take_while(|byte| **byte == b' ').count();
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| KeyDigest::of_key(&token[spaces..]))?
}

/// `application/json`, with any parameters: JSON is UTF-8 whatever they say (RFC 8259, 8.1 and 11).
fn is_json(content_type: &HeaderValue) -> bool {
    let essence = || content_type.to_str().ok()?.split(';').next();
    content_type == JSON
        || essence().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// The whole response to a lookup: status, headers and body.
pub fn response(reply: &Reply) -> Response<Bytes> {
    let mut text = Text::new();
    // Nothing in it needs an escape: an id is hex digits, and a profile's URL has neither quotes nor backslashes.
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
    let mut headers = reply.standing.map_or_else(json_headers, |standing| with_standing(standing, &mut text));
    match (&reply.result, reply.standing) {
        (Err(Refusal::RateLimited), Some(standing)) => {
            headers.insert(RETRY_AFTER, text.number(standing.reset_seconds));
        }
        // RFC 6750, 3, without its `error`: missing, unknown and revoked keys look alike.
        (Err(Refusal::Unauthorized), _) => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        _ => {}
    }
    let status = StatusCode::from_u16(reply.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json(status, headers, body)
}

/// Specification 8.2. The three are sent once the count is known, so that clients pace themselves.
fn with_standing(standing: Standing, text: &mut Text) -> HeaderMap {
    /// A clone takes less than half of what four insertions do.
    static HEADERS: LazyLock<HeaderMap> = LazyLock::new(|| {
        let mut headers = json_headers();
        for name in [RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET] {
            headers.insert(name, HeaderValue::from_static("0"));
        }
        headers
    });
    let mut headers = HEADERS.clone();
    for (name, value) in &mut headers {
        if *name == RATELIMIT_LIMIT {
            *value = text.number(standing.limit.into());
        } else if *name == RATELIMIT_REMAINING {
            *value = text.number(standing.remaining.into());
        } else if *name == RATELIMIT_RESET {
            *value = text.number(standing.reset_seconds);
        }
    }
    headers
}

fn error(status: StatusCode, code: &str) -> Response<Bytes> {
    json(status, json_headers(), Text::new().take(&error_parts(code)))
}

const fn error_parts(code: &str) -> [&[u8]; 3] {
    [br#"{"error":""#, code.as_bytes(), br#""}"#]
}

fn json_headers() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, JSON)])
}

fn json(status: StatusCode, headers: HeaderMap, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

/// A reply's body and its numbers, in one allocation.
struct Text(BytesMut);

impl Text {
    /// Enough for most replies; it grows for others.
    const BYTES: usize = 256;

    fn new() -> Self {
        Self(BytesMut::with_capacity(Self::BYTES))
    }

    fn take(&mut self, parts: &[&[u8]]) -> Bytes {
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.split().freeze()
    }

    fn number(&mut self, number: u64) -> HeaderValue {
        let digits = self.take(&[itoa::Buffer::new().format(number).as_bytes()]);
        HeaderValue::from_maybe_shared(digits).unwrap_or_else(|_| number.into())
    }
}
