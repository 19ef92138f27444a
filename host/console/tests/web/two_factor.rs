//! The second factor.

use std::time::Duration;

use enrich_store::users::{LinkPurpose, Role};
use http::StatusCode;
use totp_rs::{Builder, Secret};

use super::site::{Browser, PASSWORD, Page, SHOP, Site};

const ADA: &str = "ada@example.com";

/// Turns it on and returns the secret and the recovery codes.
async fn enable(site: &Site, browser: &Browser) -> (String, Vec<String>) {
    let setup = browser.get("/account/two-factor").await;
    assert!(setup.has("<svg"));
    let secret = setup.between("Key: <code class=\"wrap\">", "<").to_owned();
    let field = setup.between("name=\"secret\" value=\"", "\"").to_owned();
    let wrong = browser.post("/account/two-factor", &[("secret", &field), ("code", "000000")]).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(wrong.has(&field), "the code in the app stays valid");
    let page =
        browser.post("/account/two-factor", &[("secret", &field), ("code", &code(site, &secret))]).await;
    let codes = page.between("id=\"codes\" aria-label=\"Recovery codes\">", "</pre>");
    let codes: Vec<_> = codes.split_whitespace().map(str::to_owned).collect();
    assert_eq!(codes.len(), 10);
    (secret, codes)
}

fn code(site: &Site, secret: &str) -> String {
    let secret = Secret::try_from_base32(secret).unwrap();
    let totp = Builder::new().with_secret(secret).build().unwrap();
    totp.generate(site.now().unix_ms() / 1_000).to_string()
}

async fn sign_in(site: &Site, code: &str) -> Page {
    site.browser().post("/w/shop/sign-in", &[("email", ADA), ("password", PASSWORD), ("code", code)]).await
}

#[tokio::test]
async fn signing_in_requires_an_unused_code() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let (secret, _) = enable(&site, &browser).await;
    assert_eq!(sign_in(&site, "").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(sign_in(&site, &code(&site, &secret)).await.status, StatusCode::UNAUTHORIZED, "used at setup");
    site.advance(Duration::from_secs(30));
    let next = code(&site, &secret);
    assert_eq!(sign_in(&site, &next).await.status, StatusCode::SEE_OTHER);
    assert_eq!(sign_in(&site, &next).await.status, StatusCode::UNAUTHORIZED, "used before");
}

#[tokio::test]
async fn wrong_password_does_not_use_up_a_code() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let (_, codes) = enable(&site, &browser).await;
    let form = [("email", ADA), ("password", "wrong wrong"), ("code", codes[0].as_str())];
    assert_eq!(site.browser().post("/w/shop/sign-in", &form).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(sign_in(&site, &codes[0]).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn recovery_code_works_once_however_it_is_typed() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let (_, codes) = enable(&site, &browser).await;
    let typed = codes[3].to_uppercase().replace('-', " ");
    assert_eq!(sign_in(&site, &typed).await.status, StatusCode::SEE_OTHER);
    assert_eq!(sign_in(&site, &codes[3]).await.status, StatusCode::UNAUTHORIZED);
    assert!(browser.get("/account").await.has("9 recovery codes are left"));
    assert_eq!(browser.get("/w/shop/audit-log").await.body.matches("Used a recovery code").count(), 1);
}

#[tokio::test]
async fn turning_it_on_ends_other_sessions() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let other = site.browser().sign_in(ADA, PASSWORD).await;
    enable(&site, &browser).await;
    assert_eq!(browser.get("/account").await.status, StatusCode::OK);
    assert_eq!(other.get("/account").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn replacing_or_turning_it_off_requires_a_current_code() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let (secret, codes) = enable(&site, &browser).await;
    site.advance(Duration::from_secs(30));
    let setup = browser.get("/account/two-factor").await;
    let new_secret = setup.between("Key: <code class=\"wrap\">", "<").to_owned();
    let field = setup.between("name=\"secret\" value=\"", "\"").to_owned();
    let new_code = code(&site, &new_secret);
    for current in ["", &new_code] {
        let form = [("secret", field.as_str()), ("code", &new_code), ("current", current)];
        let page = browser.post("/account/two-factor", &form).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{current}");
        assert!(page.has("current-error") && page.has(&field));
        let page = browser.post("/account/two-factor/disable", &[("current", current)]).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{current}");
    }
    let wrong = [("secret", field.as_str()), ("code", "000000"), ("current", &codes[0])];
    assert_eq!(browser.post("/account/two-factor", &wrong).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let right = [("secret", field.as_str()), ("code", &new_code), ("current", &codes[0])];
    let replaced = browser.post("/account/two-factor", &right).await;
    assert!(replaced.has("Recovery codes"), "a wrong new code does not use up the current one");
    site.advance(Duration::from_secs(15 * 60)); // the attempts above count
    let mut browser = site.browser();
    browser.keep(&sign_in(&site, &code(&site, &new_secret)).await);
    let old = browser.post("/account/two-factor/disable", &[("current", &code(&site, &secret))]).await;
    assert_eq!(old.status, StatusCode::UNPROCESSABLE_ENTITY);
    site.advance(Duration::from_secs(30));
    let current = code(&site, &new_secret);
    let off = browser.post("/account/two-factor/disable", &[("current", &current)]).await;
    assert_eq!(off.location(), "/account?done=totp-disabled");
    site.browser().sign_in(ADA, PASSWORD).await;
}

#[tokio::test]
async fn guesses_of_the_current_code_are_limited() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    enable(&site, &browser).await;
    for n in 1..=9 {
        let page = browser.post("/account/two-factor/disable", &[("current", "000000")]).await;
        // The two requests to turn it on were attempts as well.
        assert_eq!(page.status.as_u16(), if n < 9 { 422 } else { 429 }, "{n}");
    }
}

#[tokio::test]
async fn reset_removes_it() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    enable(&site, &browser).await;
    let token = site.link(SHOP, LinkPurpose::Reset, ADA).await;
    site.browser().post(&format!("/reset/{token}"), &[("password", PASSWORD), ("again", PASSWORD)]).await;
    site.browser().sign_in(ADA, PASSWORD).await;
}
