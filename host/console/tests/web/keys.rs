//! API keys.

use std::time::Duration;

use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::lookup::TEST_REPLIES;
use enrich_lib::ports::Keys;
use enrich_sqlite::{Ledger, run_on_thread};
use enrich_store::users::Role;
use enrich_store::{Clocks, Ledger as _};
use http::StatusCode;

use super::site::{Browser, OTHER, PASSWORD, Page, SHOP, Site};

const ADA: &str = "ada@example.com";

async fn create(browser: &Browser, label: &str) -> Page {
    let page = browser.create_key(label, "").await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    page
}

fn plaintext(page: &Page) -> ApiKey {
    ApiKey::parse(page.between("aria-label=\"API key\">", "<")).unwrap()
}

#[tokio::test]
async fn test_key_is_marked_and_each_test_reply_can_be_tried() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Admin).await;
    let form = browser.get("/w/shop/keys").await.between("primary\" href=\"", "\"").to_owned();
    assert!(browser.get(&form).await.has("selected>Test key"));
    let emptied = browser.get("/w/shop/keys/new?done=not-changed").await;
    assert!(emptied.has("check every field of the form"), "{}", emptied.body);
    let page = browser.submit(&form, "/w/shop/keys", &[("label", "tests"), ("kind", "test")]).await;
    assert!(ApiKey::is_test(plaintext(&page).reveal()) && page.has("found@enrich.test"));
    assert!(browser.get("/w/shop/keys").await.has("tests <span class=\"badge\">test</span>"));
    for reply in TEST_REPLIES {
        let page = browser.post("/w/shop/quick-start", &[("email", &reply.address())]).await;
        let status = page.between("HTTP/1.1 ", " ");
        assert_eq!(status, reply.status().to_string(), "{}", reply.address());
    }
}

#[tokio::test]
async fn rotation_shows_when_the_replaced_key_expires() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Admin).await;
    let key = plaintext(&browser.create_key("till", "30").await);
    site.advance(Duration::from_secs(1)); // 30 days from now are after its end
    let path = format!("/w/shop/keys/{}/rotate", key.digest().key_id());
    let page = browser.submit(&path, &path, &[("grace", "720")]).await;
    let end = page.between("The replaced key works until <time datetime=\"", "\"");
    let list = browser.get("/w/shop/keys").await;
    assert!(list.has(&format!("Expires\"><time datetime=\"{end}\"")), "{end}: {}", list.body);
}

#[tokio::test]
async fn list_shows_the_state_and_the_times_of_each_key() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let key = plaintext(&browser.create_key("trial", "30").await);
    let other = plaintext(&create(&browser, "import").await);
    assert!(browser.get("/w/shop/keys").await.has("data-label=\"Last used\">never"));
    site.advance(Duration::from_secs(30 * 60));
    let ledger =
        Ledger::open(&site.dir, Clocks::simulated(site.now()), || Duration::ZERO, run_on_thread).unwrap();
    assert!(ledger.find(&key.digest()).await.unwrap().is_some());
    ledger.close().await.unwrap();
    let list = browser.get("/w/shop/keys").await;
    let cell = |column: &str, time: &str| format!("data-label=\"{column}\"><time datetime=\"{time}\"");
    let expiry = "2027-02-14T08:00:00Z";
    let times =
        [("Created", "2027-01-15T08:00:00Z"), ("Last used", "2027-01-15T08:30:00Z"), ("Expires", expiry)];
    for (column, time) in times {
        assert!(list.has(&cell(column, time)), "{column}: {}", list.body);
    }
    let badge = |label: &str, state: &str| format!("{label} <span class=\"badge\">{state}</span>");
    assert!(!list.has("disabled</span>"));
    for (key, action) in [(&key, "disable"), (&other, "revoke")] {
        browser.post(&format!("/w/shop/keys/{}/{action}", key.digest().key_id()), &[]).await;
    }
    let list = browser.get("/w/shop/keys").await;
    assert!(list.has(&badge("trial", "disabled")) && list.has(&badge("import", "revoked")));
    let boss = site.signed_in(SHOP, "boss@example.com", Role::Admin).await;
    let enable = "aria-label=\"Enable trial\"";
    for can_enable in [true, false] {
        assert_eq!(browser.get("/w/shop/keys").await.has(enable), can_enable);
        assert_eq!(boss.get("/w/shop/keys").await.has(">Disable for its creator<"), can_enable);
        change(&boss, key.digest().key_id(), "disable").await;
    }
    assert!(list.has(&cell("Ended", "2027-01-15T08:30:00Z")), "{}", list.body);
    site.advance(Duration::from_secs(30 * 86_400));
    let list = site.browser().sign_in(ADA, PASSWORD).await.get("/w/shop/keys").await;
    assert!(list.has(&badge("trial", "expired")) && list.has(&cell("Ended", expiry)), "{}", list.body);
}

async fn change(browser: &Browser, key: KeyId, action: &str) -> Page {
    browser.post(&format!("/w/shop/keys/{key}/{action}"), &[]).await
}

#[tokio::test]
async fn members_do_not_use_up_the_changes_of_admins() {
    let site = Site::new().await;
    for role in [Role::Member, Role::Admin] {
        let user =
            async |n: u32| site.signed_in(SHOP, &format!("{}{n}@example.com", role.as_str()), role).await;
        let (first, second, third) = (user(1).await, user(2).await, user(3).await);
        let key = plaintext(&create(&first, "CRM sync").await).digest().key_id();
        for n in 1..60 {
            assert_eq!(change(&first, key, "enable").await.status, StatusCode::SEE_OTHER, "{n}");
        }
        let refused = change(&first, key, "enable").await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.has("Too many changes") && !refused.header("retry-after").is_empty());
        assert_eq!(first.get("/w/shop/keys").await.status, StatusCode::OK, "pages can be read");
        // A session that uses up its changes does not prevent its user from ending access.
        let owner = site.browser().sign_in(&format!("{}1@example.com", role.as_str()), PASSWORD).await;
        for n in 0..60 {
            assert_eq!(change(&first, key, "disable").await.status, StatusCode::SEE_OTHER, "{n}");
        }
        assert_eq!(change(&first, key, "disable").await.status, StatusCode::TOO_MANY_REQUESTS);
        let quick_start = owner.post("/w/shop/quick-start", &[("email", "found@enrich.test")]).await;
        assert_eq!(quick_start.status, StatusCode::OK);
        assert_eq!(change(&owner, key, "disable").await.status, StatusCode::SEE_OTHER);
        let ended = owner.post("/account/sessions/end-others", &[]).await;
        assert_eq!(ended.status, StatusCode::SEE_OTHER);
        assert_eq!(first.get("/account").await.status, StatusCode::SEE_OTHER);
        // The refused change has not counted for the role. Changes that the role does not allow count.
        let expected = if role == Role::Admin { StatusCode::SEE_OTHER } else { StatusCode::FORBIDDEN };
        for n in 0..60 {
            assert_eq!(change(&second, key, "enable").await.status, expected, "{n}");
        }
        assert_eq!(change(&third, key, "enable").await.status, StatusCode::TOO_MANY_REQUESTS);
        // Users of one role use up its ends of access. The users of the other role end accesses nevertheless.
        let mut ended = change(&third, key, "revoke").await;
        for n in 4..14 {
            let user = user(n).await;
            for _ in 0..60 {
                ended = change(&user, KeyId::from_number(n), "revoke").await;
            }
        }
        assert_eq!(ended.status, StatusCode::TOO_MANY_REQUESTS);
        let other = site.signed_in(OTHER, &format!("{}@example.com", role.as_str()), role).await;
        assert_eq!(other.post("/account/sessions/end-others", &[]).await.status, StatusCode::SEE_OTHER);
    }
    site.advance(Duration::from_secs(60));
    let ada = site.signed_in(SHOP, ADA, Role::Member).await;
    create(&ada, "CRM sync").await;
}
