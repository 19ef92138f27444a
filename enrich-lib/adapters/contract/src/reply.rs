//! The replies that the interface permits: the statuses, bodies and headers of specification 2, 4, 7 and 8,
//! and of the decisions where it is silent.
//!
//! The library's tests, the fuzz targets and the simulation check each reply against this table, and so can
//! the tests of a gateway. It uses no code that creates replies, so that it cannot repeat a mistake of that
//! code.
//!
//! ```
//! use enrich_contract::reply;
//!
//! let response = http::Response::builder()
//!     .status(401)
//!     .header("content-type", "application/json")
//!     .header("request-id", "lookup_0199d0a1c4e37b52a6f1d2c3b4a59687")
//!     .header("www-authenticate", "Bearer");
//! let response = response.body(r#"{"error":"unauthorized"}"#)?;
//! assert_eq!(reply::check(&response)?.outcome(), "unauthorized");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;

use enrich_lib::model::ProfileUrl;
use http::{HeaderMap, Response};
use serde_json::{Value, json};

/// A permitted combination of status, outcome and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule {
    /// The HTTP status.
    pub status: u16,
    /// The `status` of a result, or the code of an error.
    pub outcome: &'static str,
    /// Whether the request was counted. If so, the reply has the three rate-limit headers.
    pub is_counted: bool,
    /// The further header of the reply.
    pub header: Option<(&'static str, HeaderRule)>,
}

/// The value of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderRule {
    /// This text.
    Is(&'static str),
    /// One of these texts.
    IsOneOf(&'static [&'static str]),
    /// The value of `RateLimit-Reset`.
    IsReset,
}

const COUNTED: bool = true;
const NOT_COUNTED: bool = false;

/// All rules, in the order of the specification.
pub static RULES: [Rule; 15] = [
    rule(200, "found", COUNTED, None),
    rule(404, "not_found", COUNTED, None),
    rule(400, "invalid_request", COUNTED, reason(&BODY_REASONS)),
    rule(400, "invalid_email", COUNTED, reason(&EMAIL_REASONS)),
    rule(400, "unsupported_email", COUNTED, reason(&UNSUPPORTED_REASONS)),
    rule(401, "unauthorized", NOT_COUNTED, Some(("www-authenticate", HeaderRule::Is("Bearer")))),
    rule(402, "insufficient_credits", COUNTED, reason(&["credits-exhausted", "credits-held"])),
    rule(429, "rate_limited", COUNTED, Some(("retry-after", HeaderRule::IsReset))),
    // The service can fail before and after it counts the request.
    rule(500, "server_error", NOT_COUNTED, None),
    rule(500, "server_error", COUNTED, None),
    rule(502, "lookup_error", COUNTED, reason(&["sources-failed"])),
    rule(503, "rate_limit_unavailable", NOT_COUNTED, Some(("retry-after", HeaderRule::Is("1")))),
    // Decided: malformed HTTP, an unknown path and a wrong method.
    rule(400, "invalid_request", NOT_COUNTED, None),
    rule(404, "invalid_request", NOT_COUNTED, None),
    rule(405, "invalid_request", NOT_COUNTED, Some(("allow", HeaderRule::Is("POST")))),
];

const BODY_REASONS: [&str; 9] = [
    "missing-content-type",
    "wrong-content-type",
    "body-too-large",
    "body-cut-off",
    "body-too-slow",
    "malformed-json",
    "duplicate-field",
    "unknown-field",
    "idempotency-key",
];
const EMAIL_REASONS: [&str; 3] = ["email-missing", "email-too-long", "email-syntax"];
const UNSUPPORTED_REASONS: [&str; 8] = [
    "internationalised",
    "quoted-local-part",
    "address-literal",
    "domain-not-public",
    "disposable-domain",
    "private-relay",
    "role-account",
    "provider-not-allowed",
];

/// Decided: the reasons of a refusal. No other reply has one.
const fn reason(reasons: &'static [&'static str]) -> Option<(&'static str, HeaderRule)> {
    Some(("error-reason", HeaderRule::IsOneOf(reasons)))
}

const fn rule(
    status: u16,
    outcome: &'static str,
    is_counted: bool,
    header: Option<(&'static str, HeaderRule)>,
) -> Rule {
    Rule { status, outcome, is_counted, header }
}

/// The headers that HTTP servers add.
const SERVER_HEADERS: [&str; 5] = ["connection", "content-length", "date", "keep-alive", "server"];

const RATE_LIMIT_HEADERS: [&str; 3] = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];

/// A reply that a rule permits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The rule.
    pub rule: &'static Rule,
    /// The header `Request-Id`.
    pub request_id: String,
    /// The `lookup_id` of a result, if it is not the request's own: the lookup that has paid for the same
    /// receipt. Only a request with an idempotency key may have one.
    pub paid_by: Option<String>,
    /// The profile URL, if one was found.
    pub profile: Option<String>,
    /// The rate-limit headers, if the request was counted.
    pub rate_limit: Option<RateLimit>,
}

/// The rate-limit headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The limit of the window.
    pub limit: u64,
    /// The number of further requests that the window admits.
    pub remaining: u64,
    /// The seconds until the window ends.
    pub reset_seconds: u64,
}

impl Reply {
    /// Returns the `status` of a result, or the code of an error.
    pub fn outcome(&self) -> &'static str {
        self.rule.outcome
    }
}

/// Checks that the interface permits the response: its status, and exactly the body and the headers of that
/// status. Ignores the headers that HTTP servers add. The error states the difference.
pub fn check(response: &Response<impl AsRef<[u8]>>) -> Result<Reply, String> {
    let status = response.status().as_u16();
    let headers = interface_headers(response.headers())?;
    let body: Value = serde_json::from_slice(response.body().as_ref())
        .map_err(|error| format!("{status}: the body is not JSON: {error}"))?;

    let rate_limit = rate_limit(&headers)?;
    let outcome = body.get("status").or(body.get("error")).and_then(Value::as_str).unwrap_or_default();
    let key = (status, outcome, rate_limit.is_some());
    let rule = RULES.iter().find(|rule| (rule.status, rule.outcome, rule.is_counted) == key);
    let rule = rule.ok_or_else(|| format!("no rule permits {status} {body} with the headers {headers:?}"))?;

    let request_id = headers.get("request-id").copied().unwrap_or_default().to_owned();
    if !is_lookup_id(&request_id) {
        return Err(format!("{status}: the request id {request_id:?} has another format than lookup ids"));
    }
    let profile = profile(outcome, &body)?;
    let lookup_id = body["lookup_id"].as_str().unwrap_or(&request_id);
    let paid_by = (lookup_id != request_id && is_lookup_id(lookup_id)).then(|| lookup_id.to_owned());
    let lookup_id = paid_by.as_deref().unwrap_or(&request_id);
    let expected = expected_body(rule.outcome, lookup_id, profile.as_deref());
    if body != expected {
        return Err(format!("{status}: expected the body {expected}, received {body}"));
    }
    let expected = expected_headers(rule, &headers, &request_id);
    if headers != expected {
        return Err(format!("{status}: expected the headers {expected:?}, received {headers:?}"));
    }
    if rule.status == 429 && rate_limit.is_some_and(|rate_limit| rate_limit.remaining > 0) {
        return Err(format!("429 although requests remain: {rate_limit:?}"));
    }
    Ok(Reply { rule, request_id, paid_by, profile, rate_limit })
}

/// Returns the headers without those of the server. Each may occur once.
fn interface_headers(headers: &HeaderMap) -> Result<BTreeMap<&str, &str>, String> {
    let mut result = BTreeMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| !SERVER_HEADERS.contains(&name.as_str())) {
        let text = value.to_str().map_err(|error| format!("{name}: {value:?}: {error}"))?;
        if result.insert(name.as_str(), text).is_some() {
            return Err(format!("the header {name} is repeated"));
        }
    }
    Ok(result)
}

/// Parses the rate-limit headers. Specification 8.2: each is an integer.
fn rate_limit(headers: &BTreeMap<&str, &str>) -> Result<Option<RateLimit>, String> {
    if RATE_LIMIT_HEADERS.iter().all(|name| !headers.contains_key(name)) {
        return Ok(None);
    }
    let mut numbers = [0_u64; 3];
    for (number, name) in numbers.iter_mut().zip(RATE_LIMIT_HEADERS) {
        let text = headers.get(name).copied().unwrap_or_default();
        *number = text.parse().map_err(|error| format!("{name}: {text:?}: {error}"))?;
        if number.to_string() != text {
            return Err(format!("{name}: {text:?} is not the shortest form of the integer"));
        }
    }
    let [limit, remaining, reset_seconds] = numbers;
    // The request itself is counted, and a window ends after the request.
    if remaining >= limit || reset_seconds == 0 {
        return Err(format!("{remaining} of {limit} remain for {reset_seconds} s"));
    }
    Ok(Some(RateLimit { limit, remaining, reset_seconds }))
}

/// Returns the profile URL of a body with this outcome.
fn profile(outcome: &str, body: &Value) -> Result<Option<String>, String> {
    if outcome != "found" {
        return Ok(None);
    }
    let url = body["profile"]["linkedin_url"].as_str().unwrap_or_default();
    if ProfileUrl::parse(url).ok().is_none_or(|profile| profile.as_str() != url) {
        return Err(format!("{url:?} is not a profile URL"));
    }
    Ok(Some(url.to_owned()))
}

/// Specification 2.2, 2.3 and 2.4: exactly these fields.
fn expected_body(outcome: &str, lookup_id: &str, profile: Option<&str>) -> Value {
    match outcome {
        "found" => {
            json!({ "lookup_id": lookup_id, "status": "found", "profile": { "linkedin_url": profile } })
        }
        "not_found" => json!({ "lookup_id": lookup_id, "status": "not_found" }),
        code => json!({ "error": code }),
    }
}

/// Returns the headers of a rule. The rate-limit headers have the values of the reply.
fn expected_headers<'r>(
    rule: &Rule,
    actual: &BTreeMap<&'r str, &'r str>,
    request_id: &'r str,
) -> BTreeMap<&'r str, &'r str> {
    let mut headers = BTreeMap::from([("content-type", "application/json"), ("request-id", request_id)]);
    let rate_limit = RATE_LIMIT_HEADERS.into_iter().filter(|_| rule.is_counted);
    headers.extend(rate_limit.filter_map(|name| Some((name, *actual.get(name)?))));
    // Decided: a gateway may state the available credits.
    let may_show_credits = rule.is_counted && matches!(rule.status, 200 | 402 | 404);
    headers.extend(
        actual
            .get_key_value("credits-available")
            .filter(|(_, credits)| may_show_credits && credits.parse::<u64>().is_ok()),
    );
    headers.extend(rule.header.map(|(name, value)| match value {
        HeaderRule::Is(text) => (name, text),
        HeaderRule::IsOneOf(texts) => {
            (name, actual.get(name).copied().filter(|text| texts.contains(text)).unwrap_or(texts[0]))
        }
        HeaderRule::IsReset => (name, actual.get("ratelimit-reset").copied().unwrap_or_default()),
    }));
    headers
}

/// Returns whether the text is `lookup_` and a UUIDv7 as 32 lower-case hexadecimal digits.
fn is_lookup_id(text: &str) -> bool {
    let digits = text.strip_prefix("lookup_").unwrap_or_default().as_bytes();
    digits.len() == 32
        && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        && digits[12] == b'7'
        && matches!(digits[16], b'8' | b'9' | b'a' | b'b')
}
