//! Every reply, to the byte.

use std::sync::Arc;

use crate::scripted::{Fails, LIMIT, Script, api_key, arrival};
use enrich_lib::credit::HoldOutcome;
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::{Policy, Reply};
use enrich_lib::refusal::{Refusal, Rejection};
use enrich_lib::wire;
use http::{HeaderMap, Method, Response};
use serde_json::{Value, json};

const ADA: &str = r#"{"email":"ada@gmail.com"}"#;
const GOES_WELL: Script =
    Script { key: Ok(true), count: Ok(1), hold: Ok(HoldOutcome::Granted), person: Ok(true), settle: Ok(()) };
const STANDING: [&str; 3] = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];

#[test]
fn replies_match_snapshot() {
    let document = |(case, reply): &(_, _)| format!("# {case}\n\n{}", text(reply));
    let replies = every_reply().iter().map(document).collect::<Vec<_>>().join("\n\n\n");
    insta::assert_snapshot!(replies);
}

#[test]
fn result_has_exactly_the_specified_fields() {
    let lookup_id = "lookup_018bcfe5680077078707070707070707";
    let profile = json!({ "linkedin_url": "https://www.linkedin.com/in/ada-marlowe" });
    assert_eq!(
        body(&to(ADA, GOES_WELL)),
        json!({ "lookup_id": lookup_id, "status": "found", "profile": profile })
    );
    assert_eq!(
        body(&to(ADA, Script { person: Ok(false), ..GOES_WELL })),
        json!({ "lookup_id": lookup_id, "status": "not_found" })
    );
}

#[test]
fn error_reply_has_only_one_of_nine_codes() {
    let codes = Refusal::ALL.map(|refusal| (refusal.code(), refusal.status()));
    let mut seen: Vec<&str> = Vec::new();
    for (case, reply) in every_reply().iter().filter(|(_, reply)| body(reply).get("status").is_none()) {
        let (code, status) =
            *codes.iter().find(|(code, _)| body(reply) == json!({ "error": code })).expect(case);
        // An unknown path or method keeps its standard HTTP status.
        assert!(reply.status() == status || [404, 405].contains(&reply.status().as_u16()), "{case}");
        seen.push(code);
    }
    assert!(codes.iter().all(|(code, _)| seen.contains(code)), "{seen:?}");
}

#[test]
fn every_reply_is_json() {
    for (case, reply) in every_reply() {
        assert_eq!(reply.headers()["content-type"], "application/json", "{case}");
    }
}

#[test]
fn replies_after_rate_limit_have_integer_rate_limit_headers() {
    for (case, reply) in every_reply() {
        let counted = !["no API key", "the key store fails", "the window store fails"].contains(&case)
            && !case.starts_with("route:");
        for name in STANDING {
            let value =
                reply.headers().get(name).map(|value| value.to_str().unwrap().parse::<u64>().expect(case));
            assert_eq!(value.is_some(), counted, "{case}: {name}");
        }
    }
}

#[test]
fn only_429_and_503_have_retry_after() {
    for (case, reply) in every_reply() {
        match (reply.status().as_u16(), reply.headers().get("retry-after")) {
            (429, Some(seconds)) => {
                assert_eq!(reply.headers()["ratelimit-remaining"], "0");
                assert_eq!(reply.headers()["ratelimit-reset"], *seconds);
                assert!(seconds.to_str().unwrap().parse::<u64>().unwrap() >= 1);
            }
            (503, Some(seconds)) => assert_eq!(seconds, "1"),
            (status, seconds) => assert!(seconds.is_none() && ![429, 503].contains(&status), "{case}"),
        }
    }
}

#[test]
fn all_401_replies_are_identical() {
    // The store contains no revoked keys, so that a revoked key is handled like an unknown one.
    let unknown_key = Script { key: Ok(false), ..GOES_WELL };
    let other = ApiKey::generate(|| 8);
    let missing = text(&respond(None, ADA, GOES_WELL));
    for authorization in [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer enr_".to_owned(),
        format!("Bearer {}x", api_key().reveal()),
        format!("Basic {}", api_key().reveal()),
        format!("Bearer {}", api_key().reveal()),
        format!("Bearer {}", other.reveal()),
    ] {
        assert_eq!(text(&respond(Some(&authorization), ADA, unknown_key)), missing, "{authorization:?}");
    }
    for body in ["", "[]", r#"{"email":"info@gmail.com"}"#] {
        assert_eq!(text(&respond(None, body, GOES_WELL)), missing, "{body}");
    }
}

#[test]
fn unknown_path_differs_from_not_found_person() {
    let [unknown_path, not_found] = ["route: another path", "not found"].map(|case| {
        let (_, reply) = every_reply().into_iter().find(|(name, _)| *name == case).unwrap();
        reply
    });
    assert_eq!([unknown_path.status(), not_found.status()], [404, 404]);
    assert!(body(&unknown_path).get("status").is_none());
    assert!(body(&not_found).get("error").is_none());
}

/// Returns each reply with the name of its case, in the order of the checks.
fn every_reply() -> Vec<(&'static str, Response<bytes::Bytes>)> {
    let id = arrival().id;
    let refused =
        |method, path| wire::rejection(wire::route(&method, path).expect_err("no such operation"), id);
    vec![
        ("route: another path", refused(Method::POST, "/api/v1/person")),
        ("route: another method", refused(Method::GET, wire::PATH)),
        ("route: no HTTP", wire::rejection(Rejection::Malformed, id)),
        ("route: the service broke down", wire::internal_error(id)),
        ("no API key", respond(None, ADA, GOES_WELL)),
        ("the key store fails", to(ADA, Script { key: Err(Fails), ..GOES_WELL })),
        ("over the burst limit", to(ADA, Script { count: Ok(LIMIT + 1), ..GOES_WELL })),
        ("the window store fails", to(ADA, Script { count: Err(Fails), ..GOES_WELL })),
        ("no object", to("[]", GOES_WELL)),
        ("another field", to(r#"{"email":"ada@gmail.com","name":"Ada"}"#, GOES_WELL)),
        ("no email", to("{}", GOES_WELL)),
        ("no address", to(r#"{"email":"ada"}"#, GOES_WELL)),
        ("a role", to(r#"{"email":"info@gmail.com"}"#, GOES_WELL)),
        ("too few credits", to(ADA, Script { hold: Ok(HoldOutcome::Insufficient), ..GOES_WELL })),
        ("the hold fails", to(ADA, Script { hold: Err(Fails), ..GOES_WELL })),
        ("the resolver fails", to(ADA, Script { person: Err(Fails), ..GOES_WELL })),
        ("the spend fails", to(ADA, Script { settle: Err(Fails), ..GOES_WELL })),
        ("not found", to(ADA, Script { person: Ok(false), ..GOES_WELL })),
        ("found", to(ADA, GOES_WELL)),
        ("found, the last of its window", to(ADA, Script { count: Ok(LIMIT), ..GOES_WELL })),
    ]
}

/// Returns the reply to a request with a valid key and `body`.
fn to(body: &'static str, script: Script) -> Response<bytes::Bytes> {
    respond(Some(&format!("Bearer {}", api_key().reveal())), body, script)
}

fn respond(authorization: Option<&str>, body: &'static str, script: Script) -> Response<bytes::Bytes> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "application/json".parse().expect("a header"));
    if let Some(value) = authorization {
        headers.insert("authorization", value.parse().expect("a header"));
    }
    let request = wire::request(&headers, Ok(body.into()));
    let (reply, _): (Reply, _) = crate::scripted::answer(&Arc::new(Policy::default()), script, request);
    wire::response(&reply)
}

/// Formats a whole response, with its headers sorted by name.
fn text(response: &Response<bytes::Bytes>) -> String {
    let header =
        |(name, value): (_, &http::HeaderValue)| format!("{name}: {}", value.to_str().expect("ASCII"));
    let mut headers: Vec<_> = response.headers().iter().map(header).collect();
    headers.sort();
    let body = std::str::from_utf8(response.body()).expect("UTF-8");
    format!("{}\n{}\n\n{body}", response.status(), headers.join("\n"))
}

fn body(response: &Response<bytes::Bytes>) -> Value {
    serde_json::from_slice(response.body()).expect("JSON")
}
