//! Vendors with valid HTTP responses.

use enrich_lib::resolver::VendorErrorKind::{
    InvalidResponse, KeyRejected, OutOfCredits, RateLimited, RequestRejected, TimedOut, Unavailable,
    UnusableAnswer,
};
use enrich_vendors::provider::Client;
use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::world::{EMAIL, NAME, Outcome, SECRET, description, failed, found, look_up, provider};

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

#[tokio::test]
async fn maps_each_status_to_an_outcome() {
    for (answer, outcome) in [
        (status(201), failed(InvalidResponse)),
        (status(202), failed(InvalidResponse)),
        (ResponseTemplate::new(204), failed(InvalidResponse)),
        (status(206), failed(InvalidResponse)),
        (status(400), failed(RequestRejected)),
        (status(401), failed(KeyRejected)),
        (status(402), failed(OutOfCredits)),
        (status(403), failed(KeyRejected)),
        (status(404), Outcome::NoMatch),
        (status(422), failed(RequestRejected)),
        (status(429), failed(RateLimited)),
        (status(429).insert_header("retry-after", "7"), Outcome::Failed(RateLimited, Some(7))),
        (status(500), failed(Unavailable)),
        (status(502), failed(Unavailable)),
        (status(504), failed(TimedOut)),
        (status(524), failed(TimedOut)),
        (status(503).insert_header("retry-after", "60"), Outcome::Failed(Unavailable, Some(60))),
    ] {
        let text = format!("{answer:?}");
        assert_eq!(answered(answer).await, outcome, "{text}");
    }
}

/// How profiles and confidences are read is tested in `provider::answer`.
#[tokio::test]
async fn reads_json_of_any_content_type_and_nothing_else() {
    let json = "application/json";
    let url = format!("linkedin.com/in/{NAME}");
    let scored = |score: u8| json!({"score": score, "person": {"linkedin": url}}).to_string();
    let whole = scored(95);
    let second = json!({"score": 80, "person": {"linkedin": "", "links": [url]}});
    let other_host = json!({"score": 95, "person": {"linkedin": format!("https://evil.example/in/{NAME}")}});
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (body, content_type, outcome) in [
        (&*whole, json, found()),
        (&whole, "application/vnd.acme+json; charset=utf-8", found()),
        (&whole, "text/html", found()),
        (&whole, "text/plain", found()),
        (&format!("\u{feff}{whole}"), json, found()),
        (&whole.replace('{', r#"{"note":"\ud800","size":1e999,"#), json, found()),
        (&second.to_string(), json, found()),
        (&scored(79), json, Outcome::NoMatch),
        (r#"{"person":{"linkedin":null}}"#, json, Outcome::NoMatch),
        (&other_host.to_string(), json, failed(UnusableAnswer)),
        (&whole.replace("95", "\"95\""), json, failed(UnusableAnswer)),
        ("null", json, failed(InvalidResponse)),
        ("[]", json, failed(InvalidResponse)),
        ("<html>", "text/html", failed(InvalidResponse)),
        ("<html>", json, failed(InvalidResponse)),
        ("ok", "text/plain", failed(InvalidResponse)),
        ("", json, failed(InvalidResponse)),
        (&whole[..whole.len() - 1], json, failed(InvalidResponse)),
        (&format!("{whole}{whole}"), json, failed(InvalidResponse)),
        (&deep, json, failed(InvalidResponse)),
        (&format!("\"{}\"", "x".repeat(256 * 1024)), json, failed(UnusableAnswer)),
    ] {
        let answer = ResponseTemplate::new(200).set_body_raw(body, content_type);
        assert_eq!(answered(answer).await, outcome, "{content_type}: {body:.80}");
    }
}

#[tokio::test]
async fn does_not_follow_redirects() {
    let elsewhere = MockServer::start().await;
    Mock::given(any()).respond_with(status(200)).expect(0).mount(&elsewhere).await;
    for status in [301, 302, 303, 307, 308] {
        let redirect = ResponseTemplate::new(status).insert_header("location", elsewhere.uri());
        assert_eq!(answered(redirect).await, failed(InvalidResponse), "{status}");
    }
}
