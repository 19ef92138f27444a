//! Invitations and password resets.

use enrich_store::users::Role;
use http::StatusCode;

use super::site::{OTHER, SHOP, Site};

const ADA: &str = "ada@example.com";

/// Passwords are rated one at a time, and not on the thread of the pages.
#[tokio::test]
async fn sign_in_waits_for_no_rating_of_a_new_password() {
    let site = Site::new().await;
    let slow = "Ab1!".repeat(10);
    let mut ratings = Vec::new();
    for user in [ADA, "ben@example.com", "cat@example.com"] {
        let link = site.invite(SHOP, user, Role::Member).await;
        ratings.extend((0..10).map(|_| {
            let (browser, link, slow) = (site.browser(), link.clone(), slow.clone());
            tokio::spawn(async move { browser.post(&link, &[("password", &slow), ("again", &slow)]).await })
        }));
    }
    for _ in 0..100 {
        tokio::task::yield_now().await; // each rating waits for its turn
    }
    let unknown = [("email", "eve@example.com"), ("password", "wrong wrong")];
    assert_eq!(site.browser().post("/w/shop/sign-in", &unknown).await.status, StatusCode::UNAUTHORIZED);
    assert!(ratings.iter().any(|rating| !rating.is_finished()), "the ratings were first");
    for rating in ratings {
        let page = rating.await.unwrap();
        assert!(page.has("easy to guess"), "{}", page.body);
    }
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
