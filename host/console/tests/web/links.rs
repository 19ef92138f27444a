//! Invitations and password resets.

use std::time::Duration;

use enrich_store::users::{LinkPurpose, Role};
use http::StatusCode;

use crate::site::{OTHER, PASSWORD, SHOP, Site};

const ADA: &str = "ada@example.com";
const FORM: [(&str, &str); 2] = [("password", PASSWORD), ("again", PASSWORD)];

#[tokio::test]
async fn invitation_works_once_and_survives_link_checkers() {
    let site = Site::new();
    let link = site.invite(SHOP, ADA, Role::Member).await;
    let browser = site.browser();
    for _ in 0..3 {
        assert!(browser.get(&link).await.has("Join shop"));
    }
    assert_eq!(browser.post(&link, &FORM).await.location(), "/sign-in?done=password-set");
    for page in [browser.get(&link).await, browser.post(&link, &FORM).await] {
        assert_eq!(page.status, StatusCode::NOT_FOUND);
        assert!(page.has("This link is not valid"));
    }
}

#[tokio::test]
async fn refused_password_does_not_use_up_the_link() {
    let site = Site::new();
    let link = site.invite(SHOP, ADA, Role::Member).await;
    let page = site.browser().post(&link, &[("password", "password"), ("again", "password")]).await;
    assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(page.has("easy to guess"));
    assert_eq!(site.browser().post(&link, &FORM).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn link_expires_after_a_day() {
    let site = Site::new();
    let link = site.invite(SHOP, ADA, Role::Member).await;
    site.advance(Duration::from_secs(86_400 - 1));
    assert_eq!(site.browser().get(&link).await.status, StatusCode::OK);
    site.advance(Duration::from_secs(1));
    assert_eq!(site.browser().get(&link).await.status, StatusCode::NOT_FOUND);
    assert_eq!(site.browser().post(&link, &FORM).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn unknown_tokens_are_refused() {
    let site = Site::new();
    for path in
        ["/join/", "/join/x", "/reset/0", &format!("/join/{}", "0".repeat(64)), "/join/..%2F..%2Faccount"]
    {
        assert_eq!(site.browser().get(path).await.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(site.browser().post(path, &FORM).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn user_of_one_workspace_joins_another_with_the_same_password() {
    let site = Site::new();
    let browser = site.signed_in(SHOP, ADA, Role::Admin).await;
    let link = site.invite(OTHER, ADA, Role::Member).await;
    let page = site.browser().get(&link).await;
    assert!(page.has("You keep your password.") && !page.has("type=\"password\""));
    // A password in the form is ignored: the holder of an invitation must not replace it.
    let form = [("password", "lantern cobalt river"), ("again", "lantern cobalt river")];
    assert_eq!(site.browser().post(&link, &form).await.location(), "/sign-in?done=joined");
    assert_eq!(browser.get("/w/other/keys").await.status, StatusCode::OK);
    assert!(browser.get("/w/other/keys").await.has("/w/shop/keys"), "the other workspace is linked");
    site.browser().sign_in(ADA, PASSWORD).await;
}

#[tokio::test]
async fn reset_sets_a_password_and_ends_all_sessions() {
    let site = Site::new();
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let token = site.link(LinkPurpose::Reset, ADA).await;
    let new = "lantern cobalt river";
    let page = site.browser().get(&format!("/reset/{token}")).await;
    assert!(page.has("Set a new password"));
    let done = site.browser().post(&format!("/reset/{token}"), &[("password", new), ("again", new)]).await;
    assert_eq!(done.location(), "/sign-in?done=password-set");
    assert_eq!(browser.get("/account").await.status, StatusCode::SEE_OTHER);
    site.browser().sign_in(ADA, new).await;
}
