//! The built-in descriptions, tested with the answers from the vendors' documentation.

use std::fs;

use enrich_lib::resolver::VendorErrorKind::{KeyRejected, OutOfCredits, RateLimited, UnusableAnswer};
use enrich_vendors::provider::{Client, Description};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::world::{NAME, Outcome, SECRET, failed, found, look_up, provider};

/// Returns the outcome of a request to a server that replaces the vendor, and the request that it received.
async fn answered(vendor: &str, status: u16, answer: &Value) -> (Outcome, Request) {
    let server = MockServer::start().await;
    let answer = ResponseTemplate::new(status).set_body_json(answer);
    Mock::given(any()).respond_with(answer).expect(1).mount(&server).await;
    let path = format!("{}/descriptions/{vendor}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let host = text.split_once("url = \"https://").unwrap().1.split('/').next().unwrap();
    let text = text.replace(&format!("url = \"https://{host}"), &format!("url = \"{}", server.uri()));
    let outcome = look_up(&provider(Description::parse(&text).unwrap(), Client::new().unwrap())).await;
    (outcome, server.received_requests().await.unwrap().remove(0))
}

#[tokio::test]
async fn sends_the_documented_requests() {
    let bearer = format!("Bearer {SECRET}");
    for (vendor, method, url, headers, body) in [
        (
            "people-data-labs",
            "GET",
            "/v5/person/enrich?email=ada.marlowe%2Bnews%40gmail.com&min_likelihood=8\
             &required=linkedin_url&data_include=linkedin_url",
            &[("x-api-key", SECRET)][..],
            "",
        ),
        (
            "leadmagic",
            "POST",
            "/v1/people/b2b-profile",
            &[("x-api-key", SECRET)],
            r#"{"personal_email":"ada.marlowe+news@gmail.com"}"#,
        ),
        (
            "enrich-layer",
            "GET",
            "/api/v2/profile/resolve/email?email=ada.marlowe%2Bnews%40gmail.com&lookup_depth=superficial",
            &[("authorization", &*bearer)],
            "",
        ),
        (
            "contactout",
            "GET",
            "/v1/people/person?email=ada.marlowe%2Bnews%40gmail.com",
            &[("authorization", "basic"), ("token", SECRET)],
            "",
        ),
        (
            "hunter",
            "GET",
            "/v2/people/find?email=ada.marlowe%2Bnews%40gmail.com",
            &[("x-api-key", SECRET)],
            "",
        ),
    ] {
        let (_, request) = answered(vendor, 200, &json!({})).await;
        assert_eq!((request.method.as_str(), request.body), (method, body.into()), "{vendor}");
        assert!(request.url.as_str().ends_with(url), "{vendor}: {}", request.url);
        for (name, value) in headers {
            assert_eq!(request.headers[*name], value, "{vendor}: {name}");
        }
    }
}

/// A record of People Data Labs.
fn likely(likelihood: u8) -> Value {
    let data = json!({"linkedin_url": format!("linkedin.com/in/{NAME}")});
    json!({"status": 200, "likelihood": likelihood, "data": data})
}

/// An error of People Data Labs.
fn error(kind: &str) -> Value {
    json!({"error": {"type": kind, "message": "No records were found"}})
}

/// An answer of LeadMagic.
fn lead(profile: Option<&str>, message: &str, credits: u8) -> Value {
    json!({"profile_url": profile, "message": message, "credits_consumed": credits})
}

/// A person of Hunter.
fn person(handle: Option<&str>, is_fuzzy: bool) -> Value {
    json!({
        "data": {
            "id": "b3ae14fb-6725-56d1-ac68-a76f8ce04dec",
            "twitter": {"handle": "another"},
            "linkedin": {"handle": handle},
            "fuzzy": is_fuzzy,
            "phone": null,
        },
        "meta": {"email": "matt@hunter.io"},
    })
}

#[tokio::test]
async fn interprets_the_documented_answers() {
    let url = format!("https://www.linkedin.com/in/{NAME}");
    let contact = json!({"email": "terry@gmail.com", "linkedin": url});
    let no_contact = json!({"status_code": 404, "message": "Not Found"});
    let errors = json!({"errors": [{"id": "x", "code": 0, "details": "…"}]});
    for (vendor, status, answer, outcome) in [
        ("people-data-labs", 200, likely(10), found()),
        ("people-data-labs", 200, likely(7), Outcome::NoMatch),
        ("people-data-labs", 404, error("not_found"), Outcome::NoMatch),
        ("people-data-labs", 401, error("authentication_error"), failed(KeyRejected)),
        ("people-data-labs", 402, error("payment_required"), failed(OutOfCredits)),
        ("people-data-labs", 429, error("rate_limit_error"), failed(RateLimited)),
        ("leadmagic", 200, lead(Some(&url[12..]), "Profile URL found.", 10), found()),
        ("leadmagic", 200, lead(Some(NAME), "Profile URL found", 10), found()),
        ("leadmagic", 200, lead(None, "No profile found for this email.", 0), Outcome::NoMatch),
        ("enrich-layer", 200, json!({"linkedin_profile_url": url, "profile": null}), found()),
        (
            "enrich-layer",
            200,
            json!({"linkedin_profile_url": null, "twitter_profile_url": "https://x.com/ada"}),
            Outcome::NoMatch,
        ),
        ("enrich-layer", 404, json!({}), Outcome::NoMatch),
        ("enrich-layer", 403, json!({}), failed(OutOfCredits)),
        ("contactout", 200, json!({"status_code": 200, "profile": contact}), found()),
        ("contactout", 404, no_contact.clone(), Outcome::NoMatch),
        // The documentation does not say whether the HTTP status equals `status_code` in the body.
        ("contactout", 200, no_contact, Outcome::NoMatch),
        ("contactout", 200, json!({"status_code": 200, "profile": []}), Outcome::NoMatch),
        ("hunter", 200, person(Some(NAME), false), found()),
        ("hunter", 200, person(None, false), Outcome::NoMatch),
        ("hunter", 200, person(Some(NAME), true), Outcome::NoMatch),
        ("hunter", 200, person(Some("company/hunterio"), false), failed(UnusableAnswer)),
        ("hunter", 404, errors.clone(), Outcome::NoMatch),
        ("hunter", 451, errors.clone(), Outcome::NoMatch),
        ("hunter", 401, errors.clone(), failed(KeyRejected)),
        ("hunter", 403, errors.clone(), failed(RateLimited)),
        ("hunter", 429, errors, failed(OutOfCredits)),
    ] {
        assert_eq!(answered(vendor, status, &answer).await.0, outcome, "{vendor}: {status} {answer}");
    }
}
