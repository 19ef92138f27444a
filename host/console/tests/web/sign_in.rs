//! Signing in and out, and the limits on attempts.

use std::time::Duration;

use enrich_store::users::Role;
use http::StatusCode;

use super::site::{Browser, OTHER, PASSWORD, Page, SHOP, Site, cookie_attributes, pages};

const ADA: &str = "ada@example.com";

#[tokio::test]
async fn right_password_opens_the_page_that_was_requested() {
    let site = Site::new().await;
    site.signed_in(SHOP, ADA, Role::Member).await;
    let mut browser = site.browser();
    let refused = browser.get("/w/shop/usage?days=7").await;
    assert_eq!(refused.status, StatusCode::SEE_OTHER);
    assert_eq!(refused.location(), "/w/shop/sign-in?next=%2Fw%2Fshop%2Fusage%3Fdays%3D7");
    let page = browser.get(refused.location()).await;
    assert_eq!(page.between("name=\"next\" value=\"", "\""), "/w/shop/usage?days=7");
    let form = [("email", " ADA@Example.com"), ("password", PASSWORD), ("next", "/w/shop/usage?days=7")];
    let signed_in = browser.post("/w/shop/sign-in", &form).await;
    assert_eq!(signed_in.location(), "/w/shop/usage?days=7");
    browser.keep(&signed_in);
    assert_eq!(browser.get("/w/shop/usage?days=7").await.status, StatusCode::OK);
}

#[tokio::test]
async fn foreign_addresses_are_not_redirected_to() {
    let site = Site::new().await;
    site.signed_in(SHOP, ADA, Role::Member).await;
    for next in ["https://example.com", "//example.com", "/\\example.com"] {
        let form = [("email", ADA), ("password", PASSWORD), ("next", next)];
        assert_eq!(site.browser().post("/w/shop/sign-in", &form).await.location(), "/", "{next}");
    }
}

#[tokio::test]
async fn unknown_workspace_unknown_user_and_wrong_password_get_the_same_reply() {
    let site = Site::new().await;
    site.signed_in(SHOP, ADA, Role::Member).await;
    let reply = async |workspace: &str, email: &str| {
        let path = format!("/w/{workspace}/sign-in");
        let form = site.browser().get(&path).await;
        assert_eq!(form.status, StatusCode::OK);
        let fields = [("email", email), ("password", "wrong wrong wrong"), ("next", "/")];
        let page = site.browser().post(&path, &fields).await;
        assert_eq!(page.status, StatusCode::UNAUTHORIZED);
        let bodies = [form.body, page.body];
        (page.headers, bodies.map(|body| body.replace(email, "EMAIL").replace(workspace, "WORKSPACE")))
    };
    let wrong_password = reply(SHOP, ADA).await;
    assert!(wrong_password.1[1].contains("Email or password is wrong."));
    assert_eq!(reply(SHOP, "eve@example.com").await, wrong_password);
    assert_eq!(reply("zqxw", ADA).await, wrong_password);
}

/// Each attempt computes one password hash, which takes longer than everything else. Compares the fastest of
/// several attempts, because other tests use the processor, too.
#[tokio::test]
async fn unknown_workspace_and_unknown_user_take_as_long_as_a_wrong_password() {
    let site = Site::new().await;
    let link = site.invite(SHOP, ADA, Role::Member).await;
    site.browser().post(&link, &[("password", PASSWORD), ("again", PASSWORD)]).await;
    let mut fastest = [(SHOP, ADA), (SHOP, "eve@example.com"), ("no-workspace", ADA)]
        .map(|(workspace, email)| (workspace, email, Duration::MAX));
    for round in 1.. {
        for (workspace, email, fastest) in &mut fastest {
            let started = std::time::Instant::now();
            let form = [("email", *email), ("password", "wrong wrong wrong")];
            let page = site.browser().post(&format!("/w/{workspace}/sign-in"), &form).await;
            assert_eq!(page.status, StatusCode::UNAUTHORIZED);
            *fastest = started.elapsed().min(*fastest);
        }
        let [(.., wrong_password), unknown @ ..] = &fastest;
        if round >= 5 && unknown.iter().all(|(.., took)| *took > *wrong_password / 2) {
            break;
        }
        assert!(round < 30, "{fastest:?}");
        site.advance(Duration::from_secs(15 * 60)); // the limits on attempts
    }
}

#[tokio::test]
async fn browser_remembers_the_workspace() {
    let site = Site::new().await;
    let mut browser = site.signed_in(SHOP, ADA, Role::Member).await;
    browser.post("/sign-out", &[]).await;
    assert_eq!(browser.get("/account").await.location(), "/sign-in?next=%2Faccount");
    assert_eq!(browser.get("/sign-in?next=%2Faccount").await.location(), "/w/shop/sign-in?next=%2Faccount");
    assert!(browser.get("/sign-in?workspace=").await.has("name=\"workspace\""), "it can be changed");
    assert_eq!(browser.get("/sign-in?workspace=other").await.location(), "/w/other/sign-in");
    browser.cookie = None;
    assert!(browser.get("/sign-in").await.has("name=\"workspace\""));
    let invalid = browser.get("/sign-in?workspace=%2F%2Fexample.com").await;
    assert_eq!(invalid.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(invalid.has("No workspace can have this name."));
    assert_eq!(browser.get("/w/%2F/sign-in").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn workspace_is_named_in_any_case() {
    let site = Site::new().await;
    let ada = site.signed_in(SHOP, ADA, Role::Admin).await;
    for page in pages() {
        let shown = ada.get(&page.replace("/w/shop", "/w/SHOP")).await;
        assert_eq!(shown.status, StatusCode::OK, "{page}");
        assert!(!shown.has("/w/SHOP"), "{page} links to pages of the name as it is stored");
    }
    let mut browser = site.browser();
    let form = [("email", ADA), ("password", PASSWORD), ("next", "/w/Shop/keys")];
    browser.keep(&browser.post("/w/Shop/sign-in", &form).await);
    assert_eq!(browser.get("/").await.location(), "/w/shop/keys");
}

#[tokio::test]
async fn session_opens_only_its_workspace() {
    let site = Site::new().await;
    let ada = site.signed_in(SHOP, ADA, Role::Admin).await;
    let namesake = site.signed_in(OTHER, ADA, Role::Admin).await;
    assert_eq!(namesake.get("/").await.location(), "/w/other/keys");
    for (browser, foreign) in [(&ada, "other"), (&namesake, "shop")] {
        for page in pages() {
            let path = page.replace("/w/shop", &format!("/w/{foreign}"));
            assert_eq!(browser.get(&path).await.status, StatusCode::NOT_FOUND, "{path}");
        }
    }
    // Signing in as another user ends the session of the browser.
    site.join(OTHER, "bob@example.com", Role::Member).await;
    let replaced = ada.clone().sign_in_at(OTHER, "bob@example.com", PASSWORD).await;
    assert_eq!(replaced.get("/").await.location(), "/w/other/keys");
    assert_eq!(ada.get("/account").await.status, StatusCode::SEE_OTHER);
    let log = site.browser().sign_in(ADA, PASSWORD).await.get("/w/shop/audit-log").await;
    assert!(log.has("Ended sessions") && !log.has("bob@"), "{}", log.body);
}

/// Enters a wrong password at the `n`-th address.
async fn guess(site: &Site, email: &str, n: u8) -> Page {
    let mut browser = site.browser();
    browser.address = format!("198.51.100.{n}").parse().unwrap();
    // All spellings of a workspace share its limits.
    let workspace = ["shop", "SHOP", "Shop"][usize::from(n % 3)];
    browser.post(&format!("/w/{workspace}/sign-in"), &[("email", email), ("password", "wrong wrong")]).await
}

#[tokio::test]
async fn attempts_per_account_are_limited_for_known_and_unknown_users() {
    let site = Site::new().await;
    site.signed_in(SHOP, ADA, Role::Member).await;
    site.advance(Duration::from_secs(3_600));
    for email in [ADA, "eve@example.com"] {
        for n in 1..=11 {
            let page = guess(&site, email, n).await;
            assert_eq!(page.status.as_u16(), if n <= 10 { 401 } else { 429 }, "{n}: {}", page.body);
        }
    }
    let blocked = site.browser().post("/w/shop/sign-in", &[("email", ADA), ("password", PASSWORD)]).await;
    assert_eq!(blocked.status, StatusCode::TOO_MANY_REQUESTS);
    let seconds: u64 = blocked.header("retry-after").parse().unwrap();
    site.advance(Duration::from_secs(seconds));
    // The next window has begun now.
    for n in 1..=10 {
        guess(&site, ADA, n).await;
    }
    assert_eq!(guess(&site, ADA, 11).await.header("retry-after"), "900");
    site.advance(Duration::from_secs(900));
    site.browser().sign_in(ADA, PASSWORD).await;
}

/// A user can sign in with each of the spellings.
#[tokio::test]
async fn spellings_of_an_email_share_the_limit_of_their_account() {
    let site = Site::new().await;
    site.join(SHOP, ADA, Role::Member).await;
    let spellings = [ADA, "Ada@Example.com", " ada@example.com", "ADA@EXAMPLE.COM\t"];
    for (n, spelling) in (0..12_u8).zip(spellings.into_iter().cycle()) {
        let status = guess(&site, spelling, n).await.status.as_u16();
        assert_eq!(status, if n < 10 { 401 } else { 429 }, "{n}");
    }
}

#[tokio::test]
async fn attempts_per_address_are_limited() {
    let site = Site::new().await;
    for n in 0..101 {
        let email = format!("user{n}@example.com");
        let page =
            site.browser().post("/w/shop/sign-in", &[("email", &email), ("password", "wrong wrong")]).await;
        assert_eq!(page.status.as_u16(), if n < 100 { 401 } else { 429 }, "{n}");
    }
    let mut elsewhere = site.browser();
    elsewhere.address = "198.51.100.7".parse().unwrap();
    let page =
        elsewhere.post("/w/shop/sign-in", &[("email", "user0@example.com"), ("password", "wrong")]).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
}

/// An attacker with one IPv6 network has as many addresses as there are counters of accounts.
#[tokio::test]
async fn addresses_of_one_ipv6_network_share_a_limit() {
    let site = Site::new().await;
    for n in 0..101_u8 {
        let mut browser = site.browser();
        browser.address = format!("2001:db8:7:{n:x}::1").parse().unwrap();
        let email = format!("user{n}@example.com");
        let page = browser.post("/w/shop/sign-in", &[("email", &email), ("password", "wrong wrong")]).await;
        assert_eq!(page.status.as_u16(), if n < 100 { 401 } else { 429 }, "{n}");
    }
    let mut elsewhere = site.browser();
    elsewhere.address = "2001:db8:8::1".parse().unwrap();
    let page =
        elsewhere.post("/w/shop/sign-in", &[("email", "user0@example.com"), ("password", "wrong")]).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn known_browser_keeps_its_count_when_it_signs_in() {
    let site = Site::new().await;
    let mut known = site.signed_in(SHOP, ADA, Role::Member).await;
    for n in 0..11 {
        let page = known.post("/w/shop/sign-in", &[("email", ADA), ("password", PASSWORD)]).await;
        assert_eq!(page.status.as_u16(), if n < 10 { 303 } else { 429 }, "{n}");
        known.keep(&page);
    }
}

#[tokio::test]
async fn address_over_its_limit_does_not_lock_accounts() {
    let site = Site::new().await;
    site.signed_in(SHOP, ADA, Role::Member).await;
    for n in 0..120 {
        let email = if n < 100 { format!("user{n}@example.com") } else { ADA.to_owned() };
        let form = [("email", email.as_str()), ("password", "wrong wrong")];
        let page = site.browser().post("/w/shop/sign-in", &form).await;
        // The first sign-in has counted, too.
        assert_eq!(page.status.as_u16(), if n < 99 { 401 } else { 429 }, "{n}");
    }
    let mut elsewhere = site.browser();
    elsewhere.address = "198.51.100.7".parse().unwrap();
    elsewhere.sign_in(ADA, PASSWORD).await;
}

#[tokio::test]
async fn strangers_do_not_lock_out_a_browser_that_has_signed_in() {
    let site = Site::new().await;
    let known = site.signed_in(SHOP, ADA, Role::Member).await;
    known.post("/sign-out", &[]).await;
    site.advance(Duration::from_secs(3_600));
    let attempt = async |browser: &Browser, password: &str| {
        browser.post("/w/shop/sign-in", &[("email", ADA), ("password", password)]).await.status.as_u16()
    };
    for n in 0..11_u8 {
        let mut stranger = site.browser();
        stranger.address = format!("198.51.100.{n}").parse().unwrap();
        assert_eq!(attempt(&stranger, "wrong wrong").await, if n < 10 { 401 } else { 429 }, "{n}");
    }
    let forged = format!("__Host-device={0}.{0}", "0".repeat(64));
    let mut stranger = site.browser();
    stranger.cookie = Some(forged);
    assert_eq!(attempt(&stranger, PASSWORD).await, 429);
    assert_eq!(attempt(&known, PASSWORD).await, 303);
    // The browser has a limit of its own.
    for n in 1..11 {
        assert_eq!(attempt(&known, "wrong wrong").await, if n < 10 { 401 } else { 429 }, "{n}");
    }
    // The cookie belongs to one user.
    let page = known.post("/w/other/sign-in", &[("email", ADA), ("password", PASSWORD)]).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn cookie_is_bound_to_the_host_and_invisible_to_scripts() {
    let site = Site::new().await;
    site.signed_in(SHOP, ADA, Role::Member).await;
    let page = site.browser().post("/w/shop/sign-in", &[("email", ADA), ("password", PASSWORD)]).await;
    let attributes = cookie_attributes(&page);
    let names: Vec<_> = attributes.keys().map(String::as_str).collect();
    assert_eq!(names, ["HttpOnly", "Max-Age", "Path", "SameSite", "Secure", "__Host-session"]);
    assert_eq!((attributes["Path"].as_str(), attributes["SameSite"].as_str()), ("/", "Lax"));
    assert_eq!(attributes["__Host-session"].len(), 64);
}

#[tokio::test]
async fn signing_out_ends_the_session_and_clears_the_browser() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let page = browser.post("/sign-out", &[]).await;
    assert_eq!(page.location(), "/w/shop/sign-in?done=signed-out");
    assert_eq!(page.header("clear-site-data"), "\"cache\", \"storage\"");
    assert_eq!(cookie_attributes(&page)["Max-Age"], "0");
    for path in pages() {
        assert!(browser.get(&path).await.location().starts_with("/w/shop/sign-in"), "{path}");
    }
}

#[tokio::test]
async fn pages_require_a_session() {
    let site = Site::new().await;
    let mut browser = site.browser();
    for cookie in
        [None, Some("__Host-session=".to_owned()), Some(format!("__Host-session={}", "0".repeat(64)))]
    {
        browser.cookie = cookie;
        for path in pages().into_iter().chain(["/".to_owned(), "/account".to_owned(), "/confirm".to_owned()])
        {
            let location = browser.get(&path).await.location().to_owned();
            let expected = if path.starts_with("/w/") { "/w/shop/sign-in" } else { "/sign-in" };
            assert!(location.starts_with(expected), "{path}: {location}");
        }
    }
}
