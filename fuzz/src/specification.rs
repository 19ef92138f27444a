//! The specified replies: the tables of specification 2, 4, 7 and 8, and the documented decisions where it is
//! silent.

use enrich_lib::refusal::Refusal;
use http::Response;
use serde_json::{Value, json};

const LOOKUP_ID_CHARS: usize = "lookup_".len() + 32;

/// Panics unless status, headers and body are one of the specified replies.
pub(crate) fn check_reply(reply: &Response<impl AsRef<[u8]>>) {
    let status = reply.status().as_u16();
    let text = String::from_utf8_lossy(reply.body().as_ref());
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{status} {text:?}: {e}"));
    let request_id = header(reply, "request-id").unwrap_or_default();
    assert!(is_lookup_id(request_id), "{status} {request_id:?}");
    assert!(body.get("lookup_id").is_none_or(|id| id == request_id), "{request_id} {body}");
    assert!(is_result(status, &body) || is_error(status, &body), "{status} {body}");
    assert_eq!(header(reply, "content-type"), Some("application/json"), "{status} {body}");
    check_rate_limit_headers(reply);
}

/// Specification 2.2 and 2.3: exactly these fields.
fn is_result(status: u16, body: &Value) -> bool {
    let id = &body["lookup_id"];
    let is_id = id.as_str().is_some_and(is_lookup_id);
    let url = &body["profile"]["linkedin_url"];
    let is_url = url.as_str().is_some_and(|url| url.starts_with("https://www.linkedin.com/in/"));
    is_id
        && match status {
            200 => {
                is_url
                    && *body == json!({"lookup_id": id, "status": "found", "profile": {"linkedin_url": url}})
            }
            404 => *body == json!({"lookup_id": id, "status": "not_found"}),
            _ => false,
        }
}

fn is_lookup_id(text: &str) -> bool {
    text.len() == LOOKUP_ID_CHARS && text.starts_with("lookup_")
}

/// Specification 2.4 and 7.
fn is_error(status: u16, body: &Value) -> bool {
    // Documented decision: an unknown path and a wrong method.
    let is_rejection = matches!(status, 404 | 405) && *body == json!({ "error": "invalid_request" });
    let is = |refusal: &Refusal| refusal.status() == status && *body == json!({ "error": refusal.code() });
    is_rejection || Refusal::ALL.iter().any(is)
}

/// Specification 8.2: integers, all three headers together, and `Retry-After` only on a 429 and a 503.
fn check_rate_limit_headers(reply: &Response<impl AsRef<[u8]>>) {
    let integer = |name| {
        header(reply, name).map(|text| text.parse::<u64>().unwrap_or_else(|e| panic!("{name}: {text}: {e}")))
    };
    let three = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"].map(integer);
    let retry_after = integer("retry-after");
    if reply.status() == 429 {
        assert!(matches!(three, [Some(1..), Some(0), Some(1..)]), "{three:?}");
        assert_eq!(retry_after, three[2]);
    } else {
        assert!(three.iter().all(Option::is_some) || three.iter().all(Option::is_none), "{three:?}");
        assert_eq!(retry_after, (reply.status() == 503).then_some(1));
    }
}

fn header<'a>(reply: &'a Response<impl AsRef<[u8]>>, name: &str) -> Option<&'a str> {
    let value = reply.headers().get(name)?;
    Some(value.to_str().unwrap_or_else(|e| panic!("{name}: {value:?}: {e}")))
}
