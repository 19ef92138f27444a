//! The second factor.

use std::time::Duration;

use enrich_store::users::{LinkPurpose, Role};
use http::StatusCode;

use super::site::{Browser, OTHER, PASSWORD, Page, SHOP, Site, code};

const ADA: &str = "ada@example.com";

/// Turns it on and returns the secret and the recovery codes.
async fn enable(site: &Site, browser: &mut Browser) -> (String, Vec<String>) {
    let setup = browser.get("/account/two-factor").await;
    assert!(setup.has("<svg"));
    let secret = setup.between("Key: <code class=\"wrap\">", "<").to_owned();
    let field = setup.between("name=\"secret\" value=\"", "\"").to_owned();
    let wrong = browser.post("/account/two-factor", &[("secret", &field), ("code", "000000")]).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(wrong.has(&field), "the code in the app stays valid");
    let page =
        browser.post("/account/two-factor", &[("secret", &field), ("code", &code(site, &secret))]).await;
    browser.keep(&page);
    let codes = page.between("id=\"codes\" aria-label=\"Recovery codes\">", "</pre>");
    let codes: Vec<_> = codes.split_whitespace().map(str::to_owned).collect();
    assert_eq!(codes.len(), 10);
    (secret, codes)
}

const CODE: &str = "/w/shop/sign-in/code";

/// Returns a browser that has entered the password of a user with a second factor.
async fn pending(site: &Site) -> Browser {
    let mut browser = site.browser();
    let page = browser.post("/w/shop/sign-in", &[("email", ADA), ("password", PASSWORD)]).await;
    assert_eq!(page.location(), CODE, "{}", page.body);
    browser.keep(&page);
    browser
}

async fn sign_in(site: &Site, code: &str) -> Page {
    pending(site).await.post(CODE, &[("code", code)]).await
}

/// Returns whether the page asks for the password again.
fn is_ended(page: &Page) -> bool {
    page.location() == "/w/shop/sign-in?done=password-first"
}

#[tokio::test]
async fn code_is_asked_for_only_with_a_second_factor() {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    assert!(!site.browser().get("/w/shop/sign-in").await.has("name=\"code\""));
    let (_, codes) = enable(&site, &mut browser).await;
    assert!(!site.browser().get("/w/shop/sign-in").await.has("name=\"code\""));
    let mut browser = site.browser();
    let form = [("email", ADA), ("password", PASSWORD), ("next", "/w/shop/usage?days=7")];
    let page = browser.post("/w/shop/sign-in", &form).await;
    assert_eq!(page.location(), "/w/shop/sign-in/code?next=%2Fw%2Fshop%2Fusage%3Fdays%3D7");
    browser.keep(&page);
    for path in ["/account", "/w/shop/keys"] {
        assert!(browser.get(path).await.location().contains("/sign-in?next="), "a password is not enough");
    }
    let asked = browser.get(page.location()).await;
    assert!(asked.has("name=\"code\"") && asked.has(ADA), "{}", asked.body);
    let action = asked.between("action=\"", "\"").replace("&#38;", "&");
    let wrong = browser.post(&action, &[("code", "000000")]).await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    assert!(wrong.has("The code is wrong or was used before."), "{}", wrong.body);
    assert_eq!(wrong.between("action=\"", "\"").replace("&#38;", "&"), action);
    let signed_in = browser.post(&action, &[("code", &codes[0])]).await;
    assert_eq!(signed_in.location(), "/w/shop/usage?days=7");
    browser.keep(&signed_in);
    assert_eq!(browser.get("/account").await.status, StatusCode::OK);
    assert!(is_ended(&browser.get(CODE).await), "the browser forgets the pending sign-in");
}

#[tokio::test]
async fn foreign_addresses_are_not_redirected_to_after_the_code() {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let (_, codes) = enable(&site, &mut browser).await;
    for (next, code) in ["https://example.com", "//example.com", "/\\example.com"].iter().zip(&codes) {
        let path = format!("{CODE}?next={}", next.replace('\\', "%5C"));
        assert_eq!(pending(&site).await.post(&path, &[("code", code)]).await.location(), "/", "{next}");
    }
}

#[tokio::test]
async fn pending_sign_in_belongs_to_one_browser_and_workspace_for_five_minutes() {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    site.join(OTHER, ADA, Role::Member).await;
    let (_, codes) = enable(&site, &mut browser).await;
    let code = [("code", codes[0].as_str())];
    let mut pending = pending(&site).await;
    assert!(is_ended(&site.browser().post(CODE, &code).await), "another browser");
    let other = pending.post("/w/other/sign-in/code", &code).await;
    assert_eq!(other.location(), "/w/other/sign-in?done=password-first");
    site.advance(Duration::from_secs(5 * 60));
    assert!(is_ended(&pending.get(CODE).await));
    assert!(is_ended(&pending.post(CODE, &code).await));
    // Each part of the cookie is authenticated.
    pending.keep(&pending.post("/w/shop/sign-in", &[("email", ADA), ("password", PASSWORD)]).await);
    let valid = pending.cookie.clone().unwrap();
    let parts: Vec<_> = valid.split_once('=').unwrap().1.split('.').collect();
    let [user, expires_at, proof] = parts[..] else { panic!("{valid}") };
    let later = (expires_at.parse::<u64>().unwrap() + 1).to_string();
    let next_user = (user.parse::<i64>().unwrap() + 1).to_string();
    let other_proof = proof.chars().rev().collect::<String>();
    for forged in [[&next_user, expires_at, proof], [user, &later, proof], [user, expires_at, &other_proof]] {
        pending.cookie = Some(format!("__Host-sign-in={}", forged.join(".")));
        assert!(is_ended(&pending.post(CODE, &code).await), "{forged:?}");
    }
    for forged in ["", ".", "1.2", "x.y.z", "1.2.3.4", "99999999999999999999.1.0"] {
        pending.cookie = Some(format!("__Host-sign-in={forged}"));
        assert!(is_ended(&pending.post(CODE, &code).await), "{forged}");
    }
    pending.cookie = Some(valid);
    assert_eq!(pending.post(CODE, &code).await.location(), "/");
}

#[tokio::test]
async fn changes_of_password_second_factor_and_user_end_a_pending_sign_in() {
    for change in ["password", "second factor", "user"] {
        let site = Site::new().await;
        let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
        let (_, codes) = enable(&site, &mut browser).await;
        let pending = pending(&site).await;
        match change {
            "password" => {
                let new = "lantern cobalt river";
                let form = [("current", PASSWORD), ("password", new), ("again", new)];
                let page = browser.post("/account/password", &form).await;
                assert_eq!(page.location(), "/account?done=password-changed");
            }
            "second factor" => {
                let off = browser.post("/account/two-factor/disable", &[("current", &codes[0])]).await;
                assert_eq!(off.location(), "/account?done=totp-disabled");
            }
            _ => site.remove(SHOP, ADA).await,
        }
        assert!(is_ended(&pending.get(CODE).await), "{change}");
        assert!(is_ended(&pending.post(CODE, &[("code", &codes[1])]).await), "{change}");
    }
}

#[tokio::test]
async fn codes_count_as_attempts_to_sign_in_and_are_in_the_audit_log() {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let (_, codes) = enable(&site, &mut browser).await;
    site.advance(Duration::from_secs(15 * 60));
    let mut pending = pending(&site).await;
    for n in 2..=10_u8 {
        pending.address = format!("198.51.100.{n}").parse().unwrap();
        assert_eq!(pending.post(CODE, &[("code", "000000")]).await.status, StatusCode::UNAUTHORIZED, "{n}");
    }
    let refused = pending.post(CODE, &[("code", &codes[0])]).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "also with the right code");
    let password = [("email", ADA), ("password", PASSWORD)];
    let refused = site.browser().post("/w/shop/sign-in", &password).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        let log = browser.get("/w/shop/audit-log").await;
        if log.body.matches("Wrong password or code").count() == 9 {
            assert!(log.has("not signed in") && log.has("198.51.100.10"), "{}", log.body);
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{}", log.body);
        tokio::task::yield_now().await;
    }
    // The limit of a browser that has signed in before is its own.
    let mut known = browser;
    let page = known.post("/w/shop/sign-in", &password).await;
    assert_eq!(page.location(), CODE);
    known.keep(&page);
    assert_eq!(known.post(CODE, &[("code", &codes[0])]).await.location(), "/");
}

#[tokio::test]
async fn signing_in_requires_an_unused_code() {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let (secret, _) = enable(&site, &mut browser).await;
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
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let (_, codes) = enable(&site, &mut browser).await;
    let (form, code) = ([("email", ADA), ("password", "wrong wrong")], [("code", codes[0].as_str())]);
    let mut browser = site.browser();
    let page = browser.post("/w/shop/sign-in", &form).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
    browser.keep(&page);
    assert!(is_ended(&browser.post(CODE, &code).await));
    assert_eq!(sign_in(&site, &codes[0]).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn recovery_code_works_once_however_it_is_typed() {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let (_, codes) = enable(&site, &mut browser).await;
    let typed = codes[3].to_uppercase().replace('-', " ");
    assert_eq!(sign_in(&site, &typed).await.status, StatusCode::SEE_OTHER);
    assert_eq!(sign_in(&site, &codes[3]).await.status, StatusCode::UNAUTHORIZED);
    assert!(browser.get("/account").await.has("9 recovery codes are left"));
    assert_eq!(browser.get("/w/shop/audit-log").await.body.matches("Used a recovery code").count(), 1);
}

#[tokio::test]
async fn replacing_or_turning_it_off_requires_a_current_code() {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let (secret, codes) = enable(&site, &mut browser).await;
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
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    enable(&site, &mut browser).await;
    for n in 1..=9 {
        let page = browser.post("/account/two-factor/disable", &[("current", "000000")]).await;
        // The two requests to turn it on were attempts as well.
        assert_eq!(page.status.as_u16(), if n < 9 { 422 } else { 429 }, "{n}");
    }
}

#[tokio::test]
async fn reset_removes_it() {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    enable(&site, &mut browser).await;
    let token = site.link(SHOP, LinkPurpose::Reset, ADA).await;
    site.browser().post(&format!("/reset/{token}"), &[("password", PASSWORD), ("again", PASSWORD)]).await;
    site.browser().sign_in(ADA, PASSWORD).await;
}
