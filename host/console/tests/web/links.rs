//! Invitations and password resets.

use std::time::Duration;

use enrich_store::users::Role;
use http::StatusCode;

use super::site::{OTHER, PASSWORD, SHOP, Site};

const ADA: &str = "ada@example.com";
const FORM: [(&str, &str); 2] = [("password", PASSWORD), ("again", PASSWORD)];

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
async fn link_looks_the_same_for_an_email_of_another_workspace() {
    let site = Site::new().await;
    site.signed_in(OTHER, ADA, Role::Admin).await;
    let page = async |email: &str| {
        let link = site.invite(SHOP, email, Role::Member).await;
        site.browser().get(&link).await.body.replace(email, "EMAIL")
    };
    assert_eq!(page(ADA).await, page("eve@example.com").await);
}
