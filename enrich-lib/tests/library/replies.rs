//! Every reply, to the byte.

use std::sync::Arc;

use crate::scripted::{Fails, LIMIT, Script, api_key, arrival, payer};
use enrich_contract::reply::{RULES, check};
use enrich_lib::credit::{HoldOutcome, Shortage};
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::{Policy, Reply};
use enrich_lib::refusal::Rejection;
use enrich_lib::wire;
use http::{HeaderMap, Method, Response};

const ADA: &str = r#"{"email":"ada@gmail.com"}"#;
const GOES_WELL: Script = Script::GOES_WELL;

#[test]
fn replies_match_snapshot() {
    let document = |(case, reply): &(_, _)| format!("# {case}\n\n{}", text(reply));
    let replies = every_reply().iter().map(document).collect::<Vec<_>>().join("\n\n\n");
    insta::assert_snapshot!(replies);
}

#[test]
fn every_reply_is_permitted_and_every_rule_has_one() {
    let permitted = |(case, reply)| check(&reply).unwrap_or_else(|error| panic!("{case}: {error}")).rule;
    let seen: Vec<_> = every_reply().into_iter().map(permitted).collect();
    let unseen: Vec<_> = RULES.iter().filter(|rule| !seen.contains(rule)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
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

/// Returns each reply with the name of its case, in the order of the checks.
fn every_reply() -> Vec<(&'static str, Response<bytes::Bytes>)> {
    let id = arrival().id;
    let refused = |method, path| {
        wire::rejection(&method, wire::route(&method, path).expect_err("no such operation"), id)
    };
    vec![
        ("route: another path", refused(Method::POST, "/api/v1/person")),
        ("route: another method", refused(Method::GET, wire::PATH)),
        ("route: no HTTP", wire::rejection(&Method::POST, Rejection::Malformed, id)),
        ("no API key", respond(None, ADA, GOES_WELL)),
        ("the key store fails", to(ADA, Script { key: Err(Fails), ..GOES_WELL })),
        ("over the burst limit", to(ADA, Script { count: Ok(LIMIT + 1), ..GOES_WELL })),
        ("the window store fails", to(ADA, Script { count: Err(Fails), ..GOES_WELL })),
        ("no object", to("[]", GOES_WELL)),
        ("another field", to(r#"{"email":"ada@gmail.com","name":"Ada"}"#, GOES_WELL)),
        ("no email", to("{}", GOES_WELL)),
        ("no address", to(r#"{"email":"ada"}"#, GOES_WELL)),
        ("a role", to(r#"{"email":"info@gmail.com"}"#, GOES_WELL)),
        (
            "too few credits",
            to(ADA, Script { hold: Ok(HoldOutcome::Insufficient(Shortage::Exhausted)), ..GOES_WELL }),
        ),
        ("the hold fails", to(ADA, Script { hold: Err(Fails), ..GOES_WELL })),
        ("the resolver fails", to(ADA, Script { person: Err(Fails), ..GOES_WELL })),
        ("the spend fails", to(ADA, Script { settle: Err(Fails), ..GOES_WELL })),
        ("not found", to(ADA, Script { person: Ok(false), ..GOES_WELL })),
        ("found", to(ADA, GOES_WELL)),
        ("found, paid before", to(ADA, Script { settle: Ok(Some(payer())), ..GOES_WELL })),
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
