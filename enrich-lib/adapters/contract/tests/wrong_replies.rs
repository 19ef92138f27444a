//! Replies with one mistake each. The contract names the mistake.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

use enrich_contract::reply::{HeaderRule, RULES, RateLimit, check};
use http::Response;

const ID: &str = "lookup_0199d0a1c4e37b52a6f1d2c3b4a59687";
const FOUND: &str = r#"{"lookup_id":"lookup_0199d0a1c4e37b52a6f1d2c3b4a59687","status":"found","profile":{"linkedin_url":"https://www.linkedin.com/in/ada"}}"#;

/// A reply that is permitted, before a test changes it.
fn reply(status: u16, headers: &[(&str, &str)], body: &str) -> Response<String> {
    let reply = Response::builder().status(status).header("content-type", "application/json");
    let reply = reply.header("request-id", ID);
    let reply = headers.iter().fold(reply, |reply, (name, value)| reply.header(*name, *value));
    reply.body(body.to_owned()).unwrap()
}

/// The headers of a request that was counted.
fn counted(remaining: &'static str) -> [(&'static str, &'static str); 3] {
    [("ratelimit-limit", "5"), ("ratelimit-remaining", remaining), ("ratelimit-reset", "54")]
}

fn found() -> Response<String> {
    reply(200, &counted("4"), FOUND)
}

fn limited() -> Response<String> {
    let mut limited = reply(429, &counted("0"), r#"{"error":"rate_limited"}"#);
    limited.headers_mut().insert("retry-after", "54".parse().unwrap());
    limited
}

fn unpaid() -> Response<String> {
    let reply = reply(402, &counted("4"), r#"{"error":"insufficient_credits"}"#);
    with(reply, "error-reason", "credits-held")
}

/// Sets a header, or removes it with the value `-`.
fn with(mut reply: Response<String>, name: &'static str, value: &'static str) -> Response<String> {
    match value {
        "-" => drop(reply.headers_mut().remove(name)),
        value => drop(reply.headers_mut().insert(name, value.parse().unwrap())),
    }
    reply
}

fn with_body(reply: Response<String>, from: &str, to: &str) -> Response<String> {
    assert!(reply.body().contains(from), "{from}");
    reply.map(|body| body.replace(from, to))
}

#[test]
fn returns_what_a_permitted_reply_contains() {
    let reply = check(&found()).unwrap();
    assert_eq!((reply.outcome(), reply.request_id.as_str()), ("found", ID));
    assert_eq!(reply.profile.as_deref(), Some("https://www.linkedin.com/in/ada"));
    assert_eq!(reply.rate_limit, Some(RateLimit { limit: 5, remaining: 4, reset_seconds: 54 }));
    assert_eq!(reply.paid_by, None);
    let paid_before = check(&with_body(found(), "lookup_01", "lookup_00")).unwrap().paid_by;
    assert_eq!(paid_before, Some(ID.replace("lookup_01", "lookup_00")));
    assert_eq!(check(&limited()).unwrap().outcome(), "rate_limited");
}

#[test]
fn permits_each_rule_and_headers_of_the_server() {
    for rule in &RULES {
        let body = match rule.outcome {
            "found" => FOUND.to_owned(),
            "not_found" => format!(r#"{{"lookup_id":"{ID}","status":"not_found"}}"#),
            code => format!(r#"{{"error":"{code}"}}"#),
        };
        let mut headers = if rule.is_counted { counted("0").to_vec() } else { Vec::new() };
        headers.extend([("date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("server", "gateway")]);
        headers.extend(rule.header.map(|(name, value)| match value {
            HeaderRule::Is(text) => (name, text),
            HeaderRule::IsOneOf(texts) => (name, texts[texts.len() - 1]),
            HeaderRule::IsReset => (name, "54"),
            _ => unreachable!("{value:?}"),
        }));
        assert_eq!(check(&reply(rule.status, &headers, &body)).unwrap().rule, rule);
    }
}

#[test]
fn rejects_wrong_bodies() {
    for (wrong, error) in [
        (with_body(found(), FOUND, "found"), "the body is not JSON"),
        (with_body(found(), r#""status""#, r#""email":"ada@gmail.com","status""#), "expected the body"),
        (with_body(found(), r#""linkedin_url""#, r#""name":"Ada","linkedin_url""#), "expected the body"),
        (with_body(found(), "lookup_01", "lookup_0"), "expected the body"),
        (with_body(found(), "www.linkedin.com", "linkedin.example"), "is not a profile URL"),
        (with_body(found(), "/in/ada", "/in/"), "is not a profile URL"),
        (with_body(found(), r#""https://www.linkedin.com/in/ada""#, "null"), "is not a profile URL"),
        (with_body(found(), r#""found""#, r#""not_found""#), "no rule permits 200"),
        (with_body(limited(), "}", r#","message":"slow down"}"#), "expected the body"),
        (with_body(limited(), "rate_limited", "slow_down"), "no rule permits 429"),
        (reply(500, &[], r#"{"error":"lookup_error"}"#), "no rule permits 500"),
    ] {
        let actual = check(&wrong).unwrap_err();
        assert!(actual.contains(error), "{actual:?} instead of {error:?}");
    }
}

#[test]
fn rejects_wrong_headers() {
    let mut repeated = found();
    repeated.headers_mut().append("ratelimit-limit", "5".parse().unwrap());
    for (wrong, error) in [
        (with(found(), "content-type", "text/plain"), "expected the headers"),
        (with(found(), "content-type", "-"), "expected the headers"),
        (with(found(), "x-workspace", "acme"), "expected the headers"),
        (with(found(), "retry-after", "54"), "expected the headers"),
        (with(limited(), "retry-after", "53"), "expected the headers"),
        (with(limited(), "retry-after", "-"), "expected the headers"),
        (with(limited(), "error-reason", "body-too-large"), "expected the headers"),
        (with(unpaid(), "error-reason", "-"), "expected the headers"),
        (with(unpaid(), "error-reason", "email-missing"), "expected the headers"),
        (with(limited(), "ratelimit-remaining", "1"), "although requests remain"),
        (with(found(), "ratelimit-limit", "-"), "ratelimit-limit"),
        (with(found(), "ratelimit-limit", "5.0"), "ratelimit-limit"),
        (with(found(), "ratelimit-limit", "05"), "not the shortest form"),
        (with(found(), "ratelimit-remaining", "5"), "5 of 5 remain"),
        (with(found(), "ratelimit-reset", "0"), "for 0 s"),
        (repeated, "is repeated"),
        (reply(401, &[], r#"{"error":"unauthorized"}"#), "expected the headers"),
        (reply(404, &[], &format!(r#"{{"lookup_id":"{ID}","status":"not_found"}}"#)), "no rule permits 404"),
        (with(found(), "request-id", "-"), "the request id \"\""),
        (with(found(), "request-id", "lookup_0199d0a1c4e34b52a6f1d2c3b4a59687"), "the request id"),
        (with(found(), "request-id", "lookup_0199d0a1c4e37b5276f1d2c3b4a59687"), "the request id"),
        (with(found(), "request-id", "lookup_0199D0A1C4E37B52A6F1D2C3B4A59687"), "the request id"),
        (with(found(), "request-id", "lookup_0199d0a1c4e37b52a6f1d2c3b4a5968"), "the request id"),
    ] {
        let actual = check(&wrong).unwrap_err();
        assert!(actual.contains(error), "{actual:?} instead of {error:?}");
    }
}
