//! Vendors with valid HTTP responses.

use enrich_lib::resolver::VendorErrorKind::{
    InvalidResponse, KeyRejected, OutOfCredits, RateLimited, RequestRejected, Unavailable,
};
use enrich_vendors::provider::Client;
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::world::{EMAIL, NAME, Outcome, SECRET, description, look_up, provider};

/// Returns the outcome of a request to a vendor with this answer.
async fn answered(answer: ResponseTemplate) -> Outcome {
    let vendor = MockServer::start().await;
    Mock::given(any()).respond_with(answer).expect(1).mount(&vendor).await;
    look_up(&provider(description(&vendor.uri(), 20_000), Client::new().unwrap())).await
}

fn status(status: u16) -> ResponseTemplate {
    // An error response that leaks the email, the key and the profile.
    ResponseTemplate::new(status)
        .set_body_json(json!({"error": format!("{EMAIL} with {SECRET} is linkedin.com/in/{NAME}")}))
}

fn person(profile: impl Into<Value>) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({"score": 95, "person": {"linkedin": profile.into()}}))
}

#[tokio::test]
async fn maps_each_status_to_an_outcome() {
    for (answer, outcome) in [
        (status(201), Outcome::permanent(InvalidResponse)),
        (status(202), Outcome::permanent(InvalidResponse)),
        (ResponseTemplate::new(204), Outcome::permanent(InvalidResponse)),
        (status(400), Outcome::permanent(RequestRejected)),
        (status(401), Outcome::permanent(KeyRejected)),
        (status(402), Outcome::permanent(OutOfCredits)),
        (status(403), Outcome::permanent(KeyRejected)),
        (status(404), Outcome::NoMatch),
        (status(422), Outcome::permanent(RequestRejected)),
        (status(429), Outcome::retryable(RateLimited)),
        (status(429).insert_header("retry-after", "7"), Outcome::retryable_after(RateLimited, 7)),
        (status(429).insert_header("retry-after", "99999999"), Outcome::retryable_after(RateLimited, 3600)),
        (status(429).insert_header("retry-after", "soon"), Outcome::retryable(RateLimited)),
        (
            status(429)
                .insert_header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
                .insert_header("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"),
            Outcome::retryable_after(RateLimited, 30),
        ),
        (status(500), Outcome::retryable(Unavailable)),
        (status(502), Outcome::retryable(Unavailable)),
        (status(503).insert_header("retry-after", "60"), Outcome::retryable_after(Unavailable, 60)),
    ] {
        let text = format!("{answer:?}");
        assert_eq!(answered(answer).await, outcome, "{text}");
    }
}

#[tokio::test]
async fn normalizes_profile_urls() {
    for profile in [
        format!("https://www.linkedin.com/in/{NAME}"),
        format!("linkedin.com/in/{NAME}"),
        format!("http://de.linkedin.com/in/{NAME}/?trk=public#top"),
    ] {
        assert_eq!(answered(person(profile)).await, Outcome::found());
    }
    let second =
        json!({"score": 80, "person": {"linkedin": "", "links": [format!("linkedin.com/in/{NAME}")]}});
    assert_eq!(answered(ResponseTemplate::new(200).set_body_json(second)).await, Outcome::found());
}

#[tokio::test]
async fn missing_profile_is_no_match() {
    for answer in [json!({}), json!({"person": null}), json!({"person": {"linkedin": null, "links": []}})] {
        assert_eq!(
            answered(ResponseTemplate::new(200).set_body_json(&answer)).await,
            Outcome::NoMatch,
            "{answer}"
        );
    }
    assert_eq!(answered(person("")).await, Outcome::NoMatch);
}

#[tokio::test]
async fn low_confidence_is_no_match_and_missing_confidence_is_invalid() {
    for (score, outcome) in [
        (json!(79), Outcome::NoMatch),
        (json!(80), Outcome::found()),
        (json!(101), Outcome::permanent(InvalidResponse)),
        (json!("95"), Outcome::permanent(InvalidResponse)),
        (json!(null), Outcome::permanent(InvalidResponse)),
    ] {
        let answer = json!({"score": score, "person": {"linkedin": format!("linkedin.com/in/{NAME}")}});
        assert_eq!(answered(ResponseTemplate::new(200).set_body_json(&answer)).await, outcome, "{answer}");
    }
}

#[tokio::test]
async fn rejects_other_values_in_place_of_profile() {
    for profile in [
        json!(format!("https://evil.example/in/{NAME}")),
        json!(format!("https://linkedin.com.evil.example/in/{NAME}")),
        json!(format!("https://linkedin.com@evil.example/in/{NAME}")),
        json!(format!("javascript:alert('https://www.linkedin.com/in/{NAME}')")),
        json!(format!("https://www.linkedin.com/company/{NAME}")),
        json!(format!("https://www.linkedin.com/in/{NAME}/../../company/x")),
        json!(format!("https://www.linkedin.com/in/{NAME}\r\nset-cookie: a=b")),
        json!(EMAIL),
        json!(1),
        json!([format!("https://www.linkedin.com/in/{NAME}")]),
    ] {
        assert_eq!(answered(person(profile.clone())).await, Outcome::permanent(InvalidResponse), "{profile}");
    }
}

#[tokio::test]
async fn reads_json_of_any_content_type_and_nothing_else() {
    let whole = json!({"score": 95, "person": {"linkedin": format!("linkedin.com/in/{NAME}")}}).to_string();
    let typed = |body: &str, mime: &str| ResponseTemplate::new(200).set_body_raw(body, mime);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (answer, outcome) in [
        (typed(&whole, "application/json"), Outcome::found()),
        (typed(&whole, "application/vnd.acme+json; charset=utf-8"), Outcome::found()),
        (typed(&whole, "text/html"), Outcome::found()),
        (typed(&whole, "text/plain"), Outcome::found()),
        (typed(&format!("\u{feff}{whole}"), "application/json"), Outcome::found()),
        (
            typed(&whole.replace('{', r#"{"note":"\ud800","size":1e999,"#), "application/json"),
            Outcome::found(),
        ),
        (typed("null", "application/json"), Outcome::permanent(InvalidResponse)),
        (typed("[]", "application/json"), Outcome::permanent(InvalidResponse)),
        (typed("<html>", "text/html"), Outcome::permanent(InvalidResponse)),
        (typed("<html>", "application/json"), Outcome::permanent(InvalidResponse)),
        (typed("ok", "text/plain"), Outcome::permanent(InvalidResponse)),
        (typed("", "application/json"), Outcome::permanent(InvalidResponse)),
        (typed(&whole[..whole.len() - 1], "application/json"), Outcome::permanent(InvalidResponse)),
        (typed(&format!("{whole}{whole}"), "application/json"), Outcome::permanent(InvalidResponse)),
        (typed(&deep, "application/json"), Outcome::permanent(InvalidResponse)),
        (
            typed(&format!("\"{}\"", "x".repeat(256 * 1024)), "application/json"),
            Outcome::permanent(InvalidResponse),
        ),
    ] {
        assert_eq!(answered(answer).await, outcome);
    }
}

#[tokio::test]
async fn does_not_follow_redirects() {
    let elsewhere = MockServer::start().await;
    Mock::given(any())
        .respond_with(person(format!("linkedin.com/in/{NAME}")))
        .expect(0)
        .mount(&elsewhere)
        .await;
    for status in [301, 302, 303, 307, 308] {
        let redirect = ResponseTemplate::new(status).insert_header("location", elsewhere.uri());
        assert_eq!(answered(redirect).await, Outcome::permanent(InvalidResponse), "{status}");
    }
}
