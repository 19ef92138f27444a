//! The second factor.

use std::time::Duration;

use enrich_store::users::Role;
use http::StatusCode;

use super::site::{Browser, PASSWORD, Page, SHOP, Site, code};

const ADA: &str = "ada@example.com";

/// Returns a browser in which Ada is signed in and has turned it on, the secret, and the recovery codes.
async fn enabled() -> (Site, Browser, String, Vec<String>) {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let setup = browser.get("/account/two-factor").await;
    assert!(setup.has("<svg"));
    let secret = setup.between("Key: <code class=\"wrap\">", "<").to_owned();
    let field = setup.between("name=\"secret\" value=\"", "\"").to_owned();
    let wrong = browser.post("/account/two-factor", &[("secret", &field), ("code", "000000")]).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(wrong.has(&field), "the code in the app stays valid");
    let form = [("secret", &*field), ("code", &code(&site, &secret))];
    let page = browser.post("/account/two-factor", &form).await;
    browser.keep(&page);
    let codes = page.between("id=\"codes\" aria-label=\"Recovery codes\">", "</pre>");
    let codes: Vec<_> = codes.split_whitespace().map(str::to_owned).collect();
    assert_eq!(codes.len(), 10);
    let reloaded = browser.post("/account/two-factor", &form).await;
    assert_eq!(reloaded.location(), "/account?done=totp-exists");
    (site, browser, secret, codes)
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
    let (site, _, _, codes) = enabled().await;
    assert!(!site.browser().get("/w/shop/sign-in").await.has("name=\"code\""));
    let mut browser = site.browser();
    let form = [("email", ADA), ("password", PASSWORD), ("next", "/w/shop/usage?days=7")];
    let page = browser.post("/w/shop/sign-in", &form).await;
    assert_eq!(page.location(), "/w/shop/sign-in/code?next=%2Fw%2Fshop%2Fusage%3Fdays%3D7");
    browser.keep(&page);
    let asked = browser.get(page.location()).await;
    assert!(asked.has("name=\"code\"") && asked.has(ADA), "{}", asked.body);
    let change = asked.between("<a href=\"", "\"");
    assert_eq!(change, "/w/shop/sign-in?next=%2Fw%2Fshop%2Fusage%3Fdays%3D7");
    let action = asked.between("action=\"", "\"").replace("&#38;", "&");
    let late = site.browser().post(&action, &[("code", "000000")]).await;
    assert_eq!(late.location(), change.replace('?', "?done=password-first&"));
    let wrong = browser.post(&action, &[("code", "000000")]).await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    assert!(wrong.has("The code is wrong or was used before."), "{}", wrong.body);
    assert_eq!(wrong.between("action=\"", "\"").replace("&#38;", "&"), action);
    let signed_in = browser.post(&action, &[("code", &codes[0])]).await;
    assert_eq!(signed_in.location(), "/w/shop/usage?days=7");
    browser.keep(&signed_in);
    assert_eq!(browser.get("/account").await.status, StatusCode::OK);
    assert!(is_ended(&browser.get(CODE).await), "the browser forgets the pending sign-in");
    let foreign = format!("{CODE}?next=//example.com");
    assert_eq!(pending(&site).await.post(&foreign, &[("code", &codes[1])]).await.location(), "/");
}

#[tokio::test]
async fn pending_sign_in_belongs_to_one_browser_for_five_minutes() {
    let (site, _, _, codes) = enabled().await;
    let code = [("code", codes[0].as_str())];
    let mut pending = pending(&site).await;
    assert!(is_ended(&site.browser().post(CODE, &code).await), "another browser");
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
async fn each_code_signs_in_once_however_it_is_typed() {
    let (site, browser, secret, codes) = enabled().await;
    let status = async |code: &str| sign_in(&site, code).await.status.as_u16();
    assert_eq!(status("").await, 401);
    assert_eq!(status(&code(&site, &secret)).await, 401, "used at setup");
    site.advance(Duration::from_secs(30));
    let next = code(&site, &secret);
    assert_eq!([status(&next).await, status(&next).await], [303, 401]);
    site.advance(Duration::from_secs(15 * 60)); // the attempts above count
    let typed = codes[3].to_uppercase().replace('-', " ");
    assert_eq!([status(&typed).await, status(&codes[3]).await], [303, 401]);
    assert!(browser.get("/account").await.has("Recovery codes left: 9."));
    assert_eq!(browser.get("/w/shop/audit-log").await.body.matches("Used a recovery code").count(), 1);
}

#[tokio::test]
async fn strangers_do_not_lock_out_a_known_browser_before_its_code() {
    let (site, mut known, _, codes) = enabled().await;
    let form = |password| [("email", ADA), ("password", password)];
    for _ in 0..10 {
        site.browser().post("/w/shop/sign-in", &form("wrong")).await;
    }
    known.keep(&known.post("/w/shop/sign-in", &form(PASSWORD)).await);
    assert_eq!(known.post(CODE, &[("code", &codes[0])]).await.location(), "/");
}

#[tokio::test]
async fn replacing_or_turning_it_off_requires_a_current_code() {
    let (site, browser, secret, codes) = enabled().await;
    site.advance(Duration::from_secs(30));
    let setup = browser.get("/account/two-factor?done=setup-expired").await;
    assert!(setup.has("Delete the entry of the first one"), "{}", setup.body);
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
