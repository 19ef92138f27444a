//! The OpenAPI description and the contract of the replies agree with the transcripts and with the library.

use std::collections::BTreeSet;

use enrich_contract::reply::{HeaderRule, RULES, check};
use enrich_golden::{Step, scenarios};
use enrich_lib::lookup::TEST_REPLIES;
use enrich_lib::refusal::Refusal;
use enrich_lib::wire::{CREDITS_AVAILABLE, OPENAPI, PATH};
use http::Response;
use jsonschema::Validator;
use serde_json::{Value, json};

/// The headers that are not part of the API: those of HTTP itself.
const TRANSPORT_HEADERS: [&str; 6] =
    ["allow", "connection", "content-length", "content-type", "date", "keep-alive"];

/// Parses a reply of a transcript, or returns `None` for one without a body: `100 Continue`, or a reply to
/// HEAD.
fn parse(bytes: &[u8]) -> Option<Response<String>> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let text =
        text.replace("{lookup_id}", "lookup_0199d0a1c4e37b52a6f1d2c3b4a59687").replace("{seconds}", "60");
    let text = text.replace("{paid_by}", "lookup_0199d0a1c4e37b52a6f1d2c3b4a59686");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    let reply = Response::builder().status(lines.next().unwrap().split(' ').nth(1).unwrap());
    let fields = lines.map(|line| line.split_once(": ").unwrap());
    let reply = fields.fold(reply, |reply, (name, value)| reply.header(name, value));
    (!body.is_empty()).then(|| reply.body(body.to_owned()).unwrap())
}

fn body(reply: &Response<String>) -> Value {
    serde_json::from_str(reply.body()).unwrap()
}

/// Returns whether the reply is to a request for the described operation.
fn is_of_operation(reply: &Response<String>) -> bool {
    let is_unknown_path = reply.status() == 404 && body(reply) == json!({"error": "invalid_request"});
    reply.status() != 405 && !is_unknown_path
}

fn description() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// Returns a validator for the schema at a JSON pointer in the description.
fn schema(pointer: &str) -> Validator {
    let mut root = description();
    root["$ref"] = format!("#{pointer}").into();
    jsonschema::draft202012::options().should_validate_formats(true).build(&root).unwrap()
}

/// Returns the JSON pointer of the operation.
fn operation() -> String {
    format!("/paths/{}/post", PATH.replace('/', "~1"))
}

fn response_schema(status: &str) -> Validator {
    schema(&format!("{}/responses/{status}/content/application~1json/schema", operation()))
}

fn transcribed_replies() -> Vec<(String, Response<String>)> {
    let mut replies = Vec::new();
    for scenario in scenarios().unwrap() {
        for (line, step) in &scenario.steps {
            if let Step::Expect(bytes) = step
                && let Some(reply) = parse(bytes)
            {
                replies.push((format!("{}:{line}", scenario.name), reply));
            }
        }
    }
    replies
}

#[test]
fn transcripts_contain_a_reply_of_every_rule_and_no_other() {
    let permitted =
        |(place, reply): (String, _)| check(&reply).unwrap_or_else(|error| panic!("{place}: {error}")).rule;
    let seen: Vec<_> = transcribed_replies().into_iter().map(permitted).collect();
    let unseen: Vec<_> = RULES.iter().filter(|rule| !seen.contains(rule)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

#[test]
fn describes_every_reply_in_the_transcripts() {
    let description = description();
    let responses = description.pointer(&format!("{}/responses", operation())).unwrap();
    let mut unseen: BTreeSet<(String, String)> = BTreeSet::new();
    for (status, response) in responses.as_object().unwrap() {
        let headers = response["headers"].as_object().unwrap();
        unseen.extend(headers.keys().map(|name| (status.clone(), name.to_ascii_lowercase())));
    }
    let documented = unseen.clone();
    let validators: Vec<_> =
        responses.as_object().unwrap().keys().map(|status| (status, response_schema(status))).collect();
    let replies = transcribed_replies();
    assert!(replies.len() > 350, "{}", replies.len());
    for (place, mut reply) in replies.into_iter().filter(|(_, reply)| is_of_operation(reply)) {
        // With `credits.show_available`, which the transcripts do not set.
        reply.headers_mut().insert(CREDITS_AVAILABLE, 7.into());
        let has_credits = [200, 402, 404].contains(&reply.status().as_u16());
        if !has_credits {
            assert!(check(&reply).is_err(), "{place}");
            reply.headers_mut().remove(CREDITS_AVAILABLE);
        }
        let (_, validator) =
            validators.iter().find(|(status, _)| *status == reply.status().as_str()).unwrap();
        assert!(validator.is_valid(&body(&reply)), "{place}: {}", reply.body());
        for name in reply.headers().keys() {
            let header = (reply.status().as_str().to_owned(), name.to_string());
            let is_described = documented.contains(&header) || TRANSPORT_HEADERS.contains(&&*header.1);
            assert!(is_described, "{place}: {header:?}");
            unseen.remove(&header);
        }
    }
    assert!(unseen.is_empty(), "no transcript has these headers: {unseen:?}");
}

#[test]
fn describes_replies_outside_the_operation_as_errors() {
    let error = schema("/components/schemas/Error");
    let replies = transcribed_replies();
    let others: Vec<_> = replies.iter().filter(|(_, reply)| !is_of_operation(reply)).collect();
    assert!(others.len() > 20, "{}", others.len());
    assert!(others.iter().all(|(_, reply)| error.is_valid(&body(reply))));
}

#[test]
fn rejects_what_the_specification_excludes() {
    let profile = json!({"linkedin_url": "https://www.linkedin.com/in/ada"});
    let id = "lookup_0199d0a1c4e37b52a6f1d2c3b4a59687";
    let found = json!({"lookup_id": id, "status": "found", "profile": profile});
    assert!(response_schema("200").is_valid(&found));
    for (status, body) in [
        ("200", json!({"lookup_id": id, "status": "found"})),
        ("200", json!({"lookup_id": id, "status": "found", "profile": profile, "email": "a@gmail.com"})),
        (
            "200",
            json!({"lookup_id": id, "status": "found", "profile": {"linkedin_url": "ada", "name": "Ada"}}),
        ),
        ("200", json!({"lookup_id": id, "status": "not_found"})),
        ("404", json!({"lookup_id": id, "status": "not_found", "profile": profile})),
        ("404", json!({"error": "invalid_request"})),
        ("401", json!({"error": "invalid_request"})),
        ("400", json!({"error": "no_such_code"})),
        ("500", json!({"error": "server_error", "message": "a secret"})),
    ] {
        assert!(!response_schema(status).is_valid(&body), "{status} {body}");
    }
    let request = schema(&format!("{}/requestBody/content/application~1json/schema", operation()));
    assert!(request.is_valid(&json!({"email": "ada.marlowe@gmail.com"})));
    for body in [json!({}), json!({"email": 1}), json!({"email": "ada"}), json!({"email": "a@b.com", "x": 1})]
    {
        assert!(!request.is_valid(&body), "{body}");
    }
}

#[test]
fn test_replies_are_documented_and_transcribed() {
    let manual = include_str!("../../../../host/docs/api.md");
    let scenarios = scenarios().unwrap();
    let steps = scenarios.iter().flat_map(|scenario| &scenario.steps);
    let sent: Vec<_> =
        steps.filter_map(|(_, step)| if let Step::Send(bytes) = step { Some(bytes) } else { None }).collect();
    for reply in TEST_REPLIES {
        let (address, status) = (reply.address(), reply.status());
        assert!(manual.contains(&format!("| `{address}` | {status} ")), "{address}");
        assert!(OPENAPI.contains(&format!("`{address}` {status} ")), "{address}");
        let is_sent = sent.iter().any(|bytes| String::from_utf8_lossy(bytes).contains(&address));
        assert!(is_sent || !reply.delay.is_zero(), "{address}");
    }
}

#[test]
fn lists_the_errors_of_the_library_in_order() {
    let listed = description()["components"]["schemas"]["ErrorCode"]["oneOf"].take();
    let listed: Vec<_> =
        listed.as_array().unwrap().iter().map(|error| (&error["x-status"], &error["const"])).collect();
    let mut expected: Vec<_> =
        Refusal::ALL.iter().map(|refusal| (json!(refusal.status()), json!(refusal.code()))).collect();
    expected.dedup();
    assert_eq!(listed, expected.iter().map(|(status, code)| (status, code)).collect::<Vec<_>>());
}

#[test]
fn lists_the_reasons_of_the_library_in_order() {
    let of_library = Refusal::ALL.iter().filter_map(|refusal| Some((refusal.code(), refusal.reason()?)));
    let mut of_library: Vec<_> = of_library.collect();
    of_library.dedup();
    let of_contract = RULES.iter().flat_map(|rule| match rule.header {
        Some(("error-reason", HeaderRule::IsOneOf(reasons))) => {
            reasons.iter().map(|reason| (rule.outcome, *reason)).collect()
        }
        _ => Vec::new(),
    });
    assert_eq!(of_contract.collect::<Vec<_>>(), of_library);
    let described = description()["components"]["schemas"]["ErrorReason"]["oneOf"].take();
    let described: Vec<_> =
        described.as_array().unwrap().iter().map(|reason| (&reason["x-error"], &reason["const"])).collect();
    let of_library: Vec<_> = of_library.iter().map(|(code, reason)| (json!(code), json!(reason))).collect();
    assert_eq!(described, of_library.iter().map(|(code, reason)| (code, reason)).collect::<Vec<_>>());
}
