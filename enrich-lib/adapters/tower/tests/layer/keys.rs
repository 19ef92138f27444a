//! Gateways with keys of their own.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use enrich_lib::key::{KeyDigest, KeyFormat, KeyId};
use enrich_lib::memory::KeyTable;
use enrich_lib::window::{Quota, Workspace};
use enrich_tower::EnrichLayer;
use http::{HeaderValue, Request, StatusCode};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::{Events, Unreachable, demo, key, lookup, people, service};

/// Keys such as `sk_live_123`.
struct LiveKeys;

impl KeyFormat for LiveKeys {
    fn digest(&self, token: &[u8]) -> Option<KeyDigest> {
        assert_ne!(token, b"sk_live_panic");
        token.starts_with(b"sk_live_").then(|| KeyDigest::from_token(token))
    }
}

#[tokio::test]
async fn keys_of_another_format_are_found_by_their_digest() {
    let keys = KeyTable::default();
    keys.insert(KeyDigest::from_token(b"sk_live_123"), Workspace::new(demo(), Quota::default()));
    let (mut service, _) = service(people());
    service.keys = Arc::new(keys);
    let layer = EnrichLayer::new(service).key_format(Arc::new(LiveKeys));
    let gateway = layer.layer(Router::new());
    for (credentials, expected) in [
        ("Bearer sk_live_123", StatusCode::OK),
        ("bearer  sk_live_123", StatusCode::OK),
        ("Bearer sk_live_124", StatusCode::UNAUTHORIZED),
        ("Bearer sk_test_123", StatusCode::UNAUTHORIZED),
        ("Bearer sk_live_panic", StatusCode::INTERNAL_SERVER_ERROR),
        (&format!("Bearer {}", key().reveal()), StatusCode::UNAUTHORIZED),
        ("Basic sk_live_123", StatusCode::UNAUTHORIZED),
    ] {
        let mut request = lookup();
        request.headers_mut().insert("authorization", credentials.parse().unwrap());
        let response = gateway.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), expected, "{credentials}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_test_reply_is_sent_after_its_delay() {
    let (service, _) = service(people());
    let gateway = EnrichLayer::new(service).layer(Router::new()).map_request(|request: Request<Body>| {
        let (mut head, _) = request.into_parts();
        head.extensions.insert(Workspace::new(demo(), Quota::default()).with_test(true));
        Request::from_parts(head, Body::from(r#"{"email":"slow@enrich.test"}"#))
    });
    let started_at = Instant::now();
    assert_eq!(gateway.oneshot(lookup()).await.unwrap().status(), StatusCode::OK);
    assert_eq!(started_at.elapsed(), Duration::from_secs(5));
}

#[tokio::test]
async fn workspace_in_the_extensions_replaces_the_key() {
    let (mut service, accounts) = service(people());
    service.keys = Arc::new(Unreachable);
    let events = Arc::new(Events::default());
    let layer = EnrichLayer::new(service).observer(events.clone()).key_format(Arc::new(LiveKeys));
    let authenticate = |key: Option<KeyId>| {
        layer.layer(Router::new()).map_request(move |mut request: Request<Body>| {
            // Not even read: its format would panic.
            request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer sk_live_panic"));
            request.extensions_mut().insert(Workspace::new(demo(), Quota::new(3, 60).unwrap()));
            key.map(|key| request.extensions_mut().insert(key));
            request
        })
    };
    for (key, remaining) in [(None, "2"), (Some(KeyId::from_number(7)), "1"), (None, "0")] {
        let response = authenticate(key).oneshot(lookup()).await.unwrap();
        assert_eq!(
            (response.status(), &response.headers()["ratelimit-remaining"]),
            (StatusCode::OK, &remaining.parse().unwrap())
        );
    }
    assert_eq!(authenticate(None).oneshot(lookup()).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(accounts.balance(&demo()).spent, 3);
    assert_eq!(
        events.take(),
        [
            "found demo key_00000000",
            "found demo key_00000007",
            "found demo key_00000000",
            "rate_limited demo key_00000000",
        ]
    );
    // Without the extension, the key is required.
    assert_eq!(layer.layer(Router::new()).oneshot(lookup()).await.unwrap().status(), 401);
}
