//! The life of a session.

use std::time::Duration;

use enrich_store::users::Role;
use http::StatusCode;

use super::site::{Browser, PASSWORD, SHOP, Site};

const ADA: &str = "ada@example.com";
const MINUTE: Duration = Duration::from_secs(60);

async fn is_signed_in(browser: &Browser) -> bool {
    browser.get("/account").await.status == StatusCode::OK
}

#[tokio::test]
async fn session_ends_after_an_hour_without_a_request() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    site.advance(MINUTE * 59);
    assert!(is_signed_in(&browser).await);
    site.advance(MINUTE * 59);
    assert!(is_signed_in(&browser).await);
    site.advance(MINUTE * 60);
    assert!(!is_signed_in(&browser).await);
}

#[tokio::test]
async fn session_ends_after_twelve_hours_of_use() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    for _ in 0..23 {
        site.advance(MINUTE * 30);
        assert!(is_signed_in(&browser).await);
    }
    site.advance(MINUTE * 30);
    assert!(!is_signed_in(&browser).await);
}

#[tokio::test]
async fn signing_in_again_replaces_the_session_of_the_browser() {
    let site = Site::new().await;
    let before = site.signed_in(SHOP, ADA, Role::Member).await;
    let after = before.clone().sign_in(ADA, PASSWORD).await;
    assert_ne!(before.cookie, after.cookie);
    assert!(is_signed_in(&after).await);
    assert!(!is_signed_in(&before).await);
}

#[tokio::test]
async fn sessions_are_listed_and_ended_one_by_one_or_together() {
    let site = Site::new().await;
    let first = site.signed_in(SHOP, ADA, Role::Member).await;
    let second = site.browser().sign_in(ADA, PASSWORD).await;
    let third = site.browser().sign_in(ADA, PASSWORD).await;
    let page = first.get("/account").await;
    assert_eq!(page.body.matches("192.0.2.1").count(), 3);
    assert!(page.has("this one"));
    let id = page.between("/account/sessions/", "/end\"").to_owned();
    let ended = first.post(&format!("/account/sessions/{id}/end"), &[]).await;
    assert_eq!(ended.location(), "/account?done=session-ended");
    assert!(is_signed_in(&second).await != is_signed_in(&third).await);
    first.post("/account/sessions/end-others", &[]).await;
    assert!(is_signed_in(&first).await);
    assert!(!is_signed_in(&second).await && !is_signed_in(&third).await);
    first.post("/sign-out", &[]).await;
    let log = site.browser().sign_in(ADA, PASSWORD).await.get("/w/shop/audit-log").await;
    assert_eq!(log.body.matches("Ended sessions").count(), 3, "{}", log.body);
}

#[tokio::test]
async fn sensitive_changes_require_a_recent_password() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Admin).await;
    let key = site.create_key(SHOP, "crm").await;
    site.advance(MINUTE * 14);
    assert_eq!(browser.get("/w/shop/keys/new").await.status, StatusCode::OK);
    site.advance(MINUTE * 2);
    for path in ["/w/shop/keys/new", &format!("/w/shop/keys/{key}/rotate"), "/account/two-factor"] {
        let page = browser.get(path).await;
        assert_eq!(
            page.location(),
            format!("/confirm?next={}", path.replace('/', "%2F").replace('_', "%5F").replace('-', "%2D"))
        );
    }
    let wrong = browser.post("/confirm", &[("password", "wrong wrong"), ("next", "/w/shop/keys/new")]).await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    let right = browser.post("/confirm", &[("password", PASSWORD), ("next", "/w/shop/keys/new")]).await;
    assert_eq!(right.location(), "/w/shop/keys/new");
    let mut renewed = site.browser();
    renewed.keep(&right);
    assert_eq!(renewed.get("/w/shop/keys/new").await.status, StatusCode::OK);
    assert!(!is_signed_in(&browser).await, "the session has another token");
}

#[tokio::test]
async fn entering_the_password_again_does_not_prolong_the_session() {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    for _ in 0..23 {
        site.advance(MINUTE * 30);
        browser.keep(&browser.post("/confirm", &[("password", PASSWORD)]).await);
        assert!(is_signed_in(&browser).await);
    }
    site.advance(MINUTE * 30);
    assert!(!is_signed_in(&browser).await);
}
