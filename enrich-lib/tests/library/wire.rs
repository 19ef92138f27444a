//! The HTTP mapping: the headers that contain a key or announce a JSON body, and the requests for the only
//! operation.

use enrich_lib::body::BodyError;
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::Request;
use enrich_lib::model::{LookupId, Timestamp};
use enrich_lib::receipt::IdempotencyKey;
use enrich_lib::refusal::Rejection;
use enrich_lib::wire::{self, PATH};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// A placeholder for the API key in the table below.
const KEY: &str = "<key>";

#[test]
fn ignores_other_authorization_headers() {
    assert!(takes_key(&["Bearer <key>"]));
    for values in [&["Bearer <key>\u{e9}"][..], &["Bearer <key> "], &["", "Bearer <key>"]] {
        assert!(!takes_key(values), "{values:?}");
    }
}

#[test]
fn accepts_json_content_type_with_parameters() {
    for value in [
        "application/json",
        "Application/JSON", // RFC 9110, 8.3.1: case-insensitive
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/json ; charset=\"utf-8\"",
        "application/json; charset=latin1", // RFC 8259, 11: the parameter has no effect
        "application/json;",
        "application/json; profile=x; y=z",
        " application/json ",
    ] {
        assert_eq!(content_type(&[value]), Ok("{}".into()), "{value:?}");
    }
}

#[test]
fn rejects_other_content_types() {
    for value in [
        "application/*",
        "application/json charset=utf-8",
        "text/plain; application/json",
        "\u{e9}application/json",
    ] {
        assert_eq!(content_type(&[value]), Err(BodyError::ContentType), "{value:?}");
    }
}

#[test]
fn content_type_error_precedes_body_error() {
    for error in [BodyError::TooLarge, BodyError::CutOff, BodyError::TooSlow] {
        let json = headers(&[("content-type", "application/json")]);
        assert_eq!(wire::request(&json, Err(error)).body, Err(error));
        assert_eq!(wire::request(&HeaderMap::new(), Err(error)).body, Err(BodyError::MissingContentType));
    }
}

#[test]
fn malformed_or_repeated_idempotency_key_is_an_error_of_the_body() {
    let json = ("content-type", "application/json");
    let read = |values: &[&str]| {
        let lines: Vec<_> = values.iter().map(|value| ("idempotency-key", *value)).chain([json]).collect();
        let request = request(&lines);
        (request.body, request.idempotency_key)
    };
    let key = |text: &str| (Ok("{}".into()), IdempotencyKey::parse(text.as_bytes()));
    assert_eq!((read(&["order-1"]), read(&["\"order-1\""])), (key("order-1"), key("order-1")));
    assert_eq!(read(&[]), (Ok("{}".into()), None));
    for values in [&[""][..], &["order 1"], &["\"order-1"], &["order-1", "order-1"], &["é"]] {
        assert_eq!(read(values), (Err(BodyError::IdempotencyKey), None), "{values:?}");
    }
    assert_eq!(request(&[("idempotency-key", "order 1")]).body, Err(BodyError::MissingContentType));
}

#[test]
fn client_address_is_added_to_the_trace() {
    let lines = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")];
    let client = "192.0.2.7".parse().unwrap();
    let before = request(&lines).context.unwrap();
    let after = request(&lines).from_client(client).context.unwrap();
    assert_eq!((after.client, &after.trace), (Some(client), &before.trace));
    assert!(before.client.is_none() && before.trace.is_some());
}

#[test]
fn reads_the_trace_of_one_valid_traceparent() {
    const PARENT: (&str, &str) = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    const STATE: (&str, &str) = ("tracestate", "congo=t61rcWkgMzE");
    let state = |lines: &[(&str, &str)]| {
        let trace = request(lines).context?.trace.clone()?;
        assert_eq!(trace.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        Some(trace.state().map(str::to_owned))
    };
    assert_eq!(state(&[PARENT]), Some(None));
    assert_eq!(state(&[PARENT, STATE]), Some(Some(STATE.1.to_owned())));
    assert_eq!(state(&[PARENT, STATE, STATE]), Some(None));
    for none in [&[][..], &[STATE], &[PARENT, PARENT], &[("traceparent", "01-4bf9"), STATE]] {
        assert_eq!(state(none), None, "{none:?}");
    }
}

#[test]
fn only_405_has_allow_header() {
    let id = LookupId::new(Timestamp::default(), [0; 10]);
    let allow = |method, path| {
        wire::rejection(&method, wire::route(&method, path).unwrap_err(), id).headers().get("allow").cloned()
    };
    assert_eq!(allow(Method::GET, PATH), Some(HeaderValue::from_static("POST")));
    assert_eq!(allow(Method::GET, "/nowhere"), None);
}

#[test]
fn rejection_of_head_has_the_length_of_the_body_only() {
    let id = LookupId::new(Timestamp::default(), [0; 10]);
    let rejected = |method| wire::rejection(&method, Rejection::WrongMethod, id);
    let (get, head) = (rejected(Method::GET), rejected(Method::HEAD));
    assert_eq!((head.status(), head.body().len()), (get.status(), 0));
    assert_eq!(head.headers()["content-length"], get.body().len().to_string());
}

fn takes_key(authorizations: &[&str]) -> bool {
    let values: Vec<_> = authorizations.iter().map(|value| value.replace(KEY, key().reveal())).collect();
    let lines: Vec<_> = values.iter().map(|value| ("authorization", value.as_str())).collect();
    let taken = request(&lines).key;
    assert!(taken.is_none_or(|digest| digest == key().digest()), "another key: {authorizations:?}");
    taken.is_some()
}

fn content_type(values: &[&str]) -> enrich_lib::body::Body {
    let lines: Vec<_> = values.iter().map(|value| ("content-type", *value)).collect();
    request(&lines).body
}

fn request(lines: &[(&str, &str)]) -> Request {
    wire::request(&headers(lines), Ok("{}".into()))
}

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().expect("a header's name");
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a header's value"));
    }
    headers
}

fn key() -> ApiKey {
    let mut byte = 0_u8;
    ApiKey::generate(|| {
        byte += 1;
        byte
    })
}
