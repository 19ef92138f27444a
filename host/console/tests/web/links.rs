//! Invitations and password resets.

use std::time::Duration;

use enrich_store::users::{LinkPurpose, Role};
use http::StatusCode;

use super::site::{OTHER, PASSWORD, SHOP, Site, pages};

const ADA: &str = "ada@example.com";
const FORM: [(&str, &str); 2] = [("password", PASSWORD), ("again", PASSWORD)];

#[tokio::test]
async fn invitation_works_once_and_survives_link_checkers() {
    let site = Site::new().await;
    let link = site.invite(SHOP, ADA, Role::Member).await;
    let browser = site.browser();
    for _ in 0..3 {
        assert!(browser.get(&link).await.has("Join shop"));
    }
    assert_eq!(browser.post(&link, &FORM).await.location(), "/w/shop/sign-in?done=password-set");
    for page in [browser.get(&link).await, browser.post(&link, &FORM).await] {
        assert_eq!(page.status, StatusCode::NOT_FOUND);
        assert!(page.has("This link is not valid"));
    }
}

#[tokio::test]
async fn refused_password_does_not_use_up_the_link() {
    let site = Site::new().await;
    let link = site.invite(SHOP, ADA, Role::Member).await;
    let page = site.browser().post(&link, &[("password", "password"), ("again", "password")]).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.has("easy to guess"));
    assert_eq!(site.browser().post(&link, &FORM).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn attempts_with_a_link_are_limited() {
    let site = Site::new().await;
    let link = site.invite(SHOP, ADA, Role::Member).await;
    for n in 0..11 {
        let page = site.browser().post(&link, &[("password", "short"), ("again", "short")]).await;
        assert_eq!(page.status.as_u16(), if n < 10 { 422 } else { 429 }, "{n}");
    }
    let other = site.invite(SHOP, "eve@example.com", Role::Member).await;
    assert_eq!(site.browser().post(&other, &FORM).await.status, StatusCode::SEE_OTHER);
    site.advance(Duration::from_secs(15 * 60));
    assert_eq!(site.browser().post(&link, &FORM).await.status, StatusCode::SEE_OTHER);
}

/// Passwords are rated like passwords are hashed: a few at a time, and not on the thread of the pages.
#[tokio::test]
async fn passwords_are_rated_in_turn_with_those_that_are_hashed() {
    let site = Site::new().await;
    let link = site.invite(SHOP, ADA, Role::Member).await;
    let sign_in = |n: u8| {
        let (browser, email) = (site.browser(), format!("user{n}@example.com"));
        tokio::spawn(async move {
            browser.post("/w/shop/sign-in", &[("email", &email), ("password", "wrong wrong")]).await
        })
    };
    let sign_ins: Vec<_> = (0..4).map(sign_in).collect();
    for _ in 0..10 {
        tokio::task::yield_now().await; // each sign-in waits for its turn
    }
    let page = site.browser().post(&link, &[("password", "password"), ("again", "password")]).await;
    assert!(page.has("easy to guess"), "{}", page.body);
    assert!(sign_ins.iter().any(tokio::task::JoinHandle::is_finished), "the sign-ins were first");
}

#[tokio::test]
async fn link_expires_after_a_day() {
    let site = Site::new().await;
    let link = site.invite(SHOP, ADA, Role::Member).await;
    site.advance(Duration::from_secs(86_400 - 1));
    assert_eq!(site.browser().get(&link).await.status, StatusCode::OK);
    site.advance(Duration::from_secs(1));
    assert_eq!(site.browser().get(&link).await.status, StatusCode::NOT_FOUND);
    assert_eq!(site.browser().post(&link, &FORM).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn unknown_tokens_are_refused() {
    let site = Site::new().await;
    for path in
        ["/join/", "/join/x", "/reset/0", &format!("/join/{}", "0".repeat(64)), "/join/..%2F..%2Faccount"]
    {
        assert_eq!(site.browser().get(path).await.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(site.browser().post(path, &FORM).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

/// An admin of one workspace invites the address of another company, and sets a password of their own.
#[tokio::test]
async fn link_of_one_workspace_gains_nothing_in_another() {
    let site = Site::new().await;
    let stranger = site.signed_in(OTHER, ADA, Role::Admin).await;
    let ada = site.invite(SHOP, ADA, Role::Admin).await;
    assert!(site.browser().get(&ada).await.has("type=\"password\""), "the user sets a password of their own");
    let own = [("password", "lantern cobalt river"), ("again", "lantern cobalt river")];
    assert_eq!(site.browser().post(&ada, &own).await.location(), "/w/shop/sign-in?done=password-set");
    let refused = site.browser().post("/w/shop/sign-in", &[("email", ADA), ("password", PASSWORD)]).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    for page in pages() {
        assert_eq!(stranger.get(&page).await.status, StatusCode::NOT_FOUND, "{page}");
    }
    // A new password in the other workspace changes nothing here.
    let browser = site.browser().sign_in(ADA, "lantern cobalt river").await;
    let token = site.link(OTHER, LinkPurpose::Reset, ADA).await;
    site.browser().post(&format!("/reset/{token}"), &FORM).await;
    assert_eq!(browser.get("/account").await.status, StatusCode::OK);
    let log = browser.get("/w/shop/audit-log").await;
    assert_eq!(log.body.matches("Signed in").count(), 1, "{}", log.body);
    assert!(!log.has("Changed the password") && !log.has("new password"), "{}", log.body);
}

#[tokio::test]
async fn link_looks_the_same_for_an_email_of_another_workspace() {
    let site = Site::new().await;
    site.signed_in(OTHER, ADA, Role::Admin).await;
    let page = async |email: &str| {
        let link = site.invite(SHOP, email, Role::Member).await;
        site.browser().get(&link).await.body.replace(email, "EMAIL")
    };
    assert_eq!(page(ADA).await, page("eve@example.com").await);
}
