//! HTTP at the edge: headers and body in, a whole response out. No I/O: any server can use it.

use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::body::{Body, BodyFault};
use crate::key::KeyDigest;
use crate::lookup::{Outcome, Reply, Request};
use crate::model::LookupId;
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
    let body = if is_json(headers) { body } else { Err(BodyFault::ContentType) };
    Request { key: bearer_key(headers), body }
}

/// `Authorization: Bearer <API_KEY>` (specification 5.1); the scheme in any case (RFC 9110, 11.1).
fn bearer_key(headers: &HeaderMap) -> Option<KeyDigest> {
    let (scheme, token) = only(headers, AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then(|| KeyDigest::of_key(token.trim_start_matches(' ')))?
}

/// `application/json`, with any parameters: JSON is UTF-8 whatever they say (RFC 8259, 8.1 and 11).
fn is_json(headers: &HeaderMap) -> bool {
    let essence = only(headers, CONTENT_TYPE).and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// The value of a header that may stand only once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The whole response to a lookup: status, headers and body.
pub fn response(reply: &Reply) -> Response<Bytes> {
    let mut response = match &reply.result {
        Ok(outcome) => found_or_not(&reply.lookup_id, outcome),
        Err(refusal) => refused(refusal),
    };
    if let Some(standing) = &reply.standing {
        let limited = matches!(reply.result, Err(Refusal::RateLimited));
        add_standing(response.headers_mut(), standing, limited);
    }
    response
}

/// Specification 2.2 and 2.3.
fn found_or_not(lookup_id: &LookupId, outcome: &Outcome) -> Response<Bytes> {
    let lookup_id = lookup_id.to_string();
    // Nothing in it needs an escape: an id is hex digits, and a profile's URL has neither quotes nor backslashes.
    match outcome {
        Outcome::Found(url) => {
            let url = url.as_str();
            let parts = [
                r#"{"lookup_id":""#,
                &lookup_id,
                r#"","status":"found","profile":{"linkedin_url":""#,
                url,
                r#""}}"#,
            ];
            json(StatusCode::OK, parts.concat().into())
        }
        Outcome::NotFound => {
            let parts = [r#"{"lookup_id":""#, &lookup_id, r#"","status":"not_found"}"#];
            json(StatusCode::NOT_FOUND, parts.concat().into())
        }
    }
}

/// Specification 2.4.
fn refused(refusal: &Refusal) -> Response<Bytes> {
    let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = error(status, refusal.code());
    if let Refusal::Unauthorized = refusal {
        // RFC 6750, 3, without its `error`: missing, unknown and revoked keys look alike.
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Specification 8.2. The three are sent once the count is known, so that clients pace themselves; `Retry-After` when
/// they are refused.
fn add_standing(headers: &mut HeaderMap, standing: &Standing, limited: bool) {
    headers.insert(RATELIMIT_LIMIT, standing.limit.into());
    headers.insert(RATELIMIT_REMAINING, standing.remaining.into());
    headers.insert(RATELIMIT_RESET, standing.reset_seconds.into());
    if limited {
        headers.insert(RETRY_AFTER, standing.reset_seconds.into());
    }
}

fn error(status: StatusCode, code: &str) -> Response<Bytes> {
    json(status, [r#"{"error":""#, code, r#""}"#].concat().into())
}

fn json(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
