//! A user's way from an invitation to a revoked key.

use enrich_tests::servers::Postgres;
use fantoccini::key::Key;

use crate::chromium::Browser;
use crate::site::{EMAIL, PASSWORD, Site};

/// Chromium sends no such address from a field of the type `email`, or converts its domain.
const ADA: &str = "ada.müller@münchen.example";

#[tokio::test]
async fn from_invitation_to_a_revoked_key_without_javascript_on_sqlite() {
    let browser = Browser::start().await;
    browser.disable_javascript().await;
    walk(&Site::on_sqlite(), &browser).await;
}

#[tokio::test]
async fn from_invitation_to_a_revoked_key_on_postgresql() {
    let postgres = Postgres::shared();
    let database = postgres.create_database().await;
    walk(&Site::on_postgres(postgres.url(&database)), &Browser::start().await).await;
}

async fn walk(site: &Site, browser: &Browser) {
    site.sign_in(browser, ADA, "admin").await;
    assert!(browser.text().await.contains("No keys yet"));
    browser.press("Create a live key").await;
    browser.type_into("#label", "CRM sync").await;
    browser.press("Create key").await;
    browser.wait_for_heading("Key “CRM sync” created").await;
    let key = browser.find("#key").await.text().await.unwrap();
    assert_eq!(site.lookup(&key, EMAIL), 200);
    assert_eq!(site.lookup(&key, "someone.else@gmail.com"), 404);

    browser.press("Done").await;
    browser.wait_for_heading("API keys").await;
    let list = browser.text().await;
    assert!(list.contains("CRM sync") && list.contains(ADA) && !list.contains(&key), "{list}");

    let usage = format!("{}/w/shop/usage", site.url);
    let has_outcomes = async || {
        let text = browser.text().await;
        text.contains("not_found") && text.contains("billed")
    };
    browser.open_until(&usage, has_outcomes).await;
    let text = browser.text().await;
    assert!(text.contains("999"), "one credit is spent: {text}");

    browser.press("API keys").await;
    browser.press("Revoke CRM sync").await;
    browser.wait_for_heading("Revoke “CRM sync”?").await;
    browser.press("Revoke key").await;
    browser.wait_for_heading("API keys").await;
    site.assert_refused_within_a_second(&key);
    assert!(browser.text().await.contains("The key is revoked."));

    browser.press("Audit log").await;
    browser.wait_for_heading("Audit log").await;
    let log = browser.text().await;
    for part in ["Revoked a key", "Created a key", "Signed in", "Joined", "operator", "127.0.0.1"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    browser.press("Sign out").await;
    browser.wait_for_heading("Sign in").await;
    browser.open(&usage).await;
    browser.wait_for_heading("Sign in").await;
    let log = site.server.log();
    assert!(log.contains("outcome=\"found\""), "{log}");
    for secret in [key.as_str(), PASSWORD, ADA, EMAIL, "/join/"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[tokio::test]
async fn keyboard_is_enough_to_create_a_key() {
    let (site, browser) = (Site::on_sqlite(), Browser::start().await);
    browser.open(&site.invite(ADA, "member")).await;
    let keys = Keyboard(&browser);
    keys.reach("password").await;
    keys.send(PASSWORD).await;
    keys.reach("again").await;
    keys.send(PASSWORD).await;
    keys.send(&Key::Enter.to_string()).await;
    browser.wait_for_heading("Sign in").await;
    keys.reach("email").await;
    keys.send(ADA).await;
    keys.reach("password").await;
    keys.send(PASSWORD).await;
    keys.send(&Key::Enter.to_string()).await;
    browser.wait_for_heading("API keys").await;
    keys.reach("Skip to content").await;
    keys.reach("Create a live key").await;
    keys.send(&Key::Enter.to_string()).await;
    browser.wait_for_heading("Create key").await;
    keys.reach("label").await;
    keys.send("CRM sync").await;
    keys.send(&Key::Enter.to_string()).await;
    browser.wait_for_heading("Key “CRM sync” created").await;
    keys.reach("Copy").await;
    keys.reach("Done").await;
}

/// Browsers keep pages for the button "Back", also those that must not be stored.
#[tokio::test]
async fn way_back_leads_to_a_new_form_and_requires_the_session() {
    let (site, browser) = (Site::on_sqlite(), Browser::start().await);
    site.sign_in(&browser, ADA, "admin").await;
    let form = format!("{}/w/shop/keys/new#main", site.url);
    browser.open(&form).await;
    let number = browser.find("[name=form]").await.attr("value").await.unwrap().unwrap();
    browser.open(&format!("{}/w/shop/usage", site.url)).await;
    browser.client.back().await.unwrap();
    browser.find(&format!("[name=form]:not([value='{number}'])")).await;
    browser.open(&format!("{}/w/shop/usage", site.url)).await;
    site.enrich.ok(&["user", "reset", "shop", ADA]);
    browser.client.back().await.unwrap();
    browser.wait_for_heading("Sign in").await;
}

/// A second request would lose its session to the renewal by the first one.
#[tokio::test]
async fn form_is_sent_once_until_its_page_is_shown_again() {
    let (site, browser) = (Site::on_sqlite(), Browser::start().await);
    browser.open(&format!("{}/w/shop/sign-in", site.url)).await;
    let script = "const form = document.forms[0], sent = [];
        addEventListener('submit', (event) => { sent.push(!event.defaultPrevented); event.preventDefault(); });
        form.noValidate = true;
        form.requestSubmit();
        form.requestSubmit();
        dispatchEvent(new Event('pageshow'));
        form.requestSubmit();
        return sent;";
    let sent = browser.client.execute(script, vec![]).await.unwrap();
    assert_eq!(sent, serde_json::json!([true, false, true]));
}

struct Keyboard<'a>(&'a Browser);

impl Keyboard<'_> {
    async fn send(&self, text: &str) {
        self.0.client.active_element().await.unwrap().send_keys(text).await.unwrap();
    }

    /// Presses Tab until the element with this id or text has the focus, which must be visible.
    async fn reach(&self, name: &str) {
        for _ in 0..40 {
            let active = self.0.client.active_element().await.unwrap();
            if active.attr("id").await.unwrap().as_deref() == Some(name)
                || active.text().await.unwrap() == name
            {
                let script = "return getComputedStyle(document.activeElement).outlineStyle";
                let outline = self.0.client.execute(script, vec![]).await.unwrap();
                assert_ne!(outline, "none", "{name} shows no focus");
                return;
            }
            active.send_keys(&Key::Tab.to_string()).await.unwrap();
        }
        panic!("{name} cannot be reached with the keyboard");
    }
}
