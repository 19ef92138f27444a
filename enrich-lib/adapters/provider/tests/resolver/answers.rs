//! Vendors with valid HTTP responses.

use enrich_lib::resolver::VendorErrorKind::{
    InvalidResponse, KeyRejected, OutOfCredits, RateLimited, RequestRejected, Unavailable,
};
use enrich_provider::Client;
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::world::{EMAIL, NAME, Outcome, SECRET, ask, description, provider};

/// Returns the outcome of a request to a vendor with this answer.
async fn answered(answer: ResponseTemplate) -> Outcome {
    let vendor = MockServer::start().await;
    Mock::given(any()).respond_with(answer).expect(1).mount(&vendor).await;
    ask(&provider(description(&vendor.uri(), 20_000), Client::new().unwrap())).await
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
async fn each_status_has_its_outcome() {
    for (answer, outcome) in [
        (status(201), Outcome::lasting(InvalidResponse)),
        (status(202), Outcome::lasting(InvalidResponse)),
        (ResponseTemplate::new(204), Outcome::lasting(InvalidResponse)),
        (status(400), Outcome::lasting(RequestRejected)),
        (status(401), Outcome::lasting(KeyRejected)),
        (status(402), Outcome::lasting(OutOfCredits)),
        (status(403), Outcome::lasting(KeyRejected)),
        (status(404), Outcome::NoMatch),
        (status(422), Outcome::lasting(RequestRejected)),
        (status(429), Outcome::repeatable(RateLimited)),
        (status(429).insert_header("retry-after", "7"), Outcome::repeatable_after(RateLimited, 7)),
        (status(429).insert_header("retry-after", "99999999"), Outcome::repeatable_after(RateLimited, 3600)),
        (status(429).insert_header("retry-after", "soon"), Outcome::repeatable(RateLimited)),
        (
            status(429)
                .insert_header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
                .insert_header("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"),
            Outcome::repeatable_after(RateLimited, 30),
        ),
        (status(500), Outcome::repeatable(Unavailable)),
        (status(502), Outcome::repeatable(Unavailable)),
        (status(503).insert_header("retry-after", "60"), Outcome::repeatable_after(Unavailable, 60)),
    ] {
        let told = format!("{answer:?}");
        assert_eq!(answered(answer).await, outcome, "{told}");
    }
}

#[tokio::test]
async fn a_profile_comes_to_one_form() {
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
async fn nothing_where_the_profile_stands_is_no_match() {
    for answer in
        [json!({}), json!([]), json!({"person": null}), json!({"person": {"linkedin": null, "links": []}})]
    {
        assert_eq!(
            answered(ResponseTemplate::new(200).set_body_json(&answer)).await,
            Outcome::NoMatch,
            "{answer}"
        );
    }
    assert_eq!(answered(person("")).await, Outcome::NoMatch);
}

#[tokio::test]
async fn too_little_confidence_is_no_match_and_none_is_a_bad_answer() {
    for (score, outcome) in [
        (json!(79), Outcome::NoMatch),
        (json!(80), Outcome::found()),
        (json!(101), Outcome::lasting(InvalidResponse)),
        (json!("95"), Outcome::lasting(InvalidResponse)),
        (json!(null), Outcome::lasting(InvalidResponse)),
    ] {
        let answer = json!({"score": score, "person": {"linkedin": format!("linkedin.com/in/{NAME}")}});
        assert_eq!(answered(ResponseTemplate::new(200).set_body_json(&answer)).await, outcome, "{answer}");
    }
}

#[tokio::test]
async fn anything_else_where_the_profile_stands_is_a_bad_answer() {
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
        assert_eq!(answered(person(profile.clone())).await, Outcome::lasting(InvalidResponse), "{profile}");
    }
}

#[tokio::test]
async fn only_json_is_an_answer() {
    let whole = json!({"score": 95, "person": {"linkedin": format!("linkedin.com/in/{NAME}")}}).to_string();
    let typed = |body: &str, mime: &str| ResponseTemplate::new(200).set_body_raw(body, mime);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (answer, outcome) in [
        (typed(&whole, "application/json"), Outcome::found()),
        (typed(&whole, "application/vnd.acme+json; charset=utf-8"), Outcome::found()),
        (typed(&whole, "text/html"), Outcome::lasting(InvalidResponse)),
        (typed(&whole, "text/plain"), Outcome::lasting(InvalidResponse)),
        (typed("<html>", "text/html"), Outcome::lasting(InvalidResponse)),
        (typed("<html>", "application/json"), Outcome::lasting(InvalidResponse)),
        (typed("", "application/json"), Outcome::lasting(InvalidResponse)),
        (typed(&whole[..whole.len() - 1], "application/json"), Outcome::lasting(InvalidResponse)),
        (typed(&format!("{whole}{whole}"), "application/json"), Outcome::lasting(InvalidResponse)),
        (typed(&deep, "application/json"), Outcome::lasting(InvalidResponse)),
        (
            typed(&format!("\"{}\"", "x".repeat(256 * 1024)), "application/json"),
            Outcome::lasting(InvalidResponse),
        ),
    ] {
        assert_eq!(answered(answer).await, outcome);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = MockServer::start().await;
    Mock::given(any())
        .respond_with(person(format!("linkedin.com/in/{NAME}")))
        .expect(0)
        .mount(&elsewhere)
        .await;
    for status in [301, 302, 303, 307, 308] {
        let redirect = ResponseTemplate::new(status).insert_header("location", elsewhere.uri());
        assert_eq!(answered(redirect).await, Outcome::lasting(InvalidResponse), "{status}");
    }
}
