//! The built-in descriptions, tested with the answers from the vendors' documentation.

use enrich_lib::resolver::VendorErrorKind::{InvalidResponse, KeyRejected, OutOfCredits, RateLimited};
use enrich_vendors::provider::{Bills, Client, Description};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::world::{NAME, Outcome, SECRET, look_up, provider};

/// A vendor's file, the origin in it, and the response of the server that replaces it.
struct Vendor {
    text: &'static str,
    origin: &'static str,
    status: u16,
    answer: Value,
}

impl Vendor {
    /// Returns the outcome of a request, and the request that the vendor received.
    async fn look_up(self) -> (Outcome, Request) {
        let server = MockServer::start().await;
        let answer = ResponseTemplate::new(self.status).set_body_json(self.answer);
        Mock::given(any()).respond_with(answer).expect(1).mount(&server).await;
        assert!(self.text.contains(self.origin));
        let description = Description::parse(&self.text.replace(self.origin, &server.uri())).unwrap();
        let outcome = look_up(&provider(description, Client::new().unwrap())).await;
        (outcome, server.received_requests().await.unwrap().remove(0))
    }
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.headers.get(name).unwrap().to_str().unwrap()
}

#[tokio::test]
async fn people_data_labs() {
    let answered = |status, answer| Vendor {
        text: include_str!("../../descriptions/people-data-labs.toml"),
        origin: "https://api.peopledatalabs.com",
        status,
        answer,
    };
    let record = |likelihood: u8| {
        json!({
            "status": 200,
            "likelihood": likelihood,
            "data": {"linkedin_url": format!("linkedin.com/in/{NAME}")},
        })
    };
    let (outcome, request) = answered(200, record(10)).look_up().await;
    assert_eq!(outcome, Outcome::found());
    assert_eq!((request.method.as_str(), request.url.path()), ("GET", "/v5/person/enrich"));
    assert!(
        request.url.query().unwrap().starts_with("email=ada.marlowe%2Bnews%40gmail.com&min_likelihood=8&")
    );
    assert_eq!(header(&request, "x-api-key"), SECRET);
    assert_eq!(answered(200, record(7)).look_up().await.0, Outcome::NoMatch);
    let error = |status: u16, kind: &str| {
        answered(
            status,
            json!({"status": status, "error": {"type": kind, "message": "No records were found"}}),
        )
    };
    assert_eq!(error(404, "not_found").look_up().await.0, Outcome::NoMatch);
    assert_eq!(error(401, "authentication_error").look_up().await.0, Outcome::permanent(KeyRejected));
    assert_eq!(error(402, "payment_required").look_up().await.0, Outcome::permanent(OutOfCredits));
    assert_eq!(error(429, "rate_limit_error").look_up().await.0, Outcome::retryable(RateLimited));
}

#[tokio::test]
async fn leadmagic() {
    let answered = |profile: Value, message: &str, credits: u8| Vendor {
        text: include_str!("../../descriptions/leadmagic.toml"),
        origin: "https://api.leadmagic.io",
        status: 200,
        answer: json!({"profile_url": profile, "message": message, "credits_consumed": credits}),
    };
    let url = json!(format!("linkedin.com/in/{NAME}"));
    let (outcome, request) = answered(url, "Profile URL found.", 10).look_up().await;
    assert_eq!(outcome, Outcome::found());
    assert_eq!((request.method.as_str(), request.url.path()), ("POST", "/v1/people/b2b-profile"));
    assert_eq!(header(&request, "x-api-key"), SECRET);
    assert_eq!(
        request.body_json::<Value>().unwrap(),
        json!({"personal_email": "ada.marlowe+news@gmail.com"})
    );
    assert_eq!(answered(json!(NAME), "Profile URL found", 10).look_up().await.0, Outcome::found());
    let no_match = answered(json!(null), "No profile found for this email.", 0);
    assert_eq!(no_match.look_up().await.0, Outcome::NoMatch);
}

#[tokio::test]
async fn enrich_layer() {
    let answered = |status, answer| Vendor {
        text: include_str!("../../descriptions/enrich-layer.toml"),
        origin: "https://enrichlayer.com",
        status,
        answer,
    };
    let found =
        json!({"linkedin_profile_url": format!("https://www.linkedin.com/in/{NAME}"), "profile": null});
    let (outcome, request) = answered(200, found).look_up().await;
    assert_eq!(outcome, Outcome::found());
    assert_eq!((request.method.as_str(), request.url.path()), ("GET", "/api/v2/profile/resolve/email"));
    assert_eq!(request.url.query(), Some("email=ada.marlowe%2Bnews%40gmail.com&lookup_depth=superficial"));
    assert_eq!(header(&request, "authorization"), format!("Bearer {SECRET}"));
    let no_match = json!({"linkedin_profile_url": null, "twitter_profile_url": "https://x.com/ada"});
    assert_eq!(answered(200, no_match).look_up().await.0, Outcome::NoMatch);
    assert_eq!(answered(404, json!({})).look_up().await.0, Outcome::NoMatch);
    assert_eq!(answered(403, json!({})).look_up().await.0, Outcome::permanent(OutOfCredits));
}

#[tokio::test]
async fn contactout() {
    let answered = |status, answer| Vendor {
        text: include_str!("../../descriptions/contactout.toml"),
        origin: "https://api.contactout.com",
        status,
        answer,
    };
    let found = json!({
        "status_code": 200,
        "profile": {"email": "terry@gmail.com", "linkedin": format!("https://www.linkedin.com/in/{NAME}")},
    });
    let (outcome, request) = answered(200, found).look_up().await;
    assert_eq!(outcome, Outcome::found());
    assert_eq!((request.method.as_str(), request.url.path()), ("GET", "/v1/people/person"));
    assert_eq!(request.url.query(), Some("email=ada.marlowe%2Bnews%40gmail.com"));
    assert_eq!((header(&request, "authorization"), header(&request, "token")), ("basic", SECRET));
    let no_match = json!({"status_code": 404, "message": "Not Found"});
    assert_eq!(answered(404, no_match.clone()).look_up().await.0, Outcome::NoMatch);
    // The documentation does not say whether the HTTP status equals `status_code` in the body.
    assert_eq!(answered(200, no_match).look_up().await.0, Outcome::NoMatch);
    assert_eq!(answered(200, json!({"status_code": 200, "profile": []})).look_up().await.0, Outcome::NoMatch);
}

#[tokio::test]
async fn hunter() {
    let answered = |status, answer| Vendor {
        text: include_str!("../../descriptions/hunter.toml"),
        origin: "https://api.hunter.io",
        status,
        answer,
    };
    let person = |linkedin: Value, is_fuzzy: bool| {
        json!({
            "data": {
                "id": "b3ae14fb-6725-56d1-ac68-a76f8ce04dec",
                "twitter": {"handle": "another"},
                "linkedin": linkedin,
                "fuzzy": is_fuzzy,
                "phone": null,
            },
            "meta": {"email": "matt@hunter.io"},
        })
    };
    let (outcome, request) = answered(200, person(json!({"handle": NAME}), false)).look_up().await;
    assert_eq!(outcome, Outcome::found());
    assert_eq!((request.method.as_str(), request.url.path()), ("GET", "/v2/people/find"));
    assert_eq!(header(&request, "x-api-key"), SECRET);
    assert_eq!(answered(200, person(json!({"handle": null}), false)).look_up().await.0, Outcome::NoMatch);
    assert_eq!(answered(200, person(json!({"handle": NAME}), true)).look_up().await.0, Outcome::NoMatch);
    let company = person(json!({"handle": "company/hunterio"}), false);
    assert_eq!(answered(200, company).look_up().await.0, Outcome::permanent(InvalidResponse));
    let error = |status| answered(status, json!({"errors": [{"id": "x", "code": status, "details": "…"}]}));
    assert_eq!(error(404).look_up().await.0, Outcome::NoMatch);
    assert_eq!(error(451).look_up().await.0, Outcome::NoMatch);
    assert_eq!(error(401).look_up().await.0, Outcome::permanent(KeyRejected));
    assert_eq!(error(403).look_up().await.0, Outcome::retryable(RateLimited));
    assert_eq!(error(429).look_up().await.0, Outcome::permanent(OutOfCredits));
}

#[test]
fn built_in_descriptions_state_what_is_billed() {
    let bills: Vec<_> = Description::built_in_names()
        .map(|name| (name, Description::built_in(name).unwrap().bills()))
        .collect();
    assert_eq!(
        bills,
        [
            ("contactout", Bills::Matches),
            ("enrich-layer", Bills::Matches),
            ("hunter", Bills::Requests),
            ("leadmagic", Bills::Matches),
            ("people-data-labs", Bills::Matches),
        ]
    );
}
