//! Changing the password.

use enrich_store::users::Role;
use http::StatusCode;

use super::site::{PASSWORD, SHOP, Site};

const ADA: &str = "ada@example.com";
const NEW: &str = "lantern cobalt river";

#[tokio::test]
async fn password_change_ends_other_sessions_and_the_old_password() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let other = site.browser().sign_in(ADA, PASSWORD).await;
    let changed =
        browser.post("/account/password", &[("current", PASSWORD), ("password", NEW), ("again", NEW)]).await;
    assert_eq!(changed.location(), "/account?done=password-changed", "{}", changed.body);
    let mut renewed = site.browser();
    renewed.keep(&changed);
    assert_eq!(renewed.get("/account").await.status, StatusCode::OK);
    assert_eq!(browser.get("/account").await.status, StatusCode::SEE_OTHER, "the session has another token");
    assert_eq!(other.get("/account").await.status, StatusCode::SEE_OTHER);
    let old = site.browser().post("/w/shop/sign-in", &[("email", ADA), ("password", PASSWORD)]).await;
    assert_eq!(old.status, StatusCode::UNAUTHORIZED);
    site.browser().sign_in(ADA, NEW).await;
}

#[tokio::test]
async fn invalid_passwords_are_refused_beside_their_field() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    for (current, password, again, error) in [
        ("wrong wrong", NEW, NEW, "The password is wrong."),
        (PASSWORD, "short", "short", "Use at least 8 characters."),
        (PASSWORD, "password1", "password1", "easy to guess"),
        (PASSWORD, "ada@example", "ada@example", "easy to guess"),
        (PASSWORD, NEW, "other", "The two passwords differ."),
    ] {
        let form = [("current", current), ("password", password), ("again", again)];
        let page = browser.post("/account/password", &form).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(page.has(error) && page.has("aria-invalid"), "{error}: {}", page.body);
        assert!(!page.has(&format!("value=\"{password}\"")), "a password is never sent back");
    }
    site.browser().sign_in(ADA, PASSWORD).await;
}

#[tokio::test]
async fn long_passwords_with_any_characters_are_accepted() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let long = "Ärger über 7 grüne Schränke & 'Türen' ".repeat(3);
    let form = [("current", PASSWORD), ("password", &long), ("again", &long)];
    assert_eq!(browser.post("/account/password", &form).await.location(), "/account?done=password-changed");
    site.browser().sign_in(ADA, &long).await;
    let decomposed = long.replace('Ä', "A\u{308}").replace('ü', "u\u{308}").replace('7', "７");
    site.browser().sign_in(ADA, &decomposed).await;
}
