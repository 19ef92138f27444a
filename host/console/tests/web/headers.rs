//! Security headers, cross-site requests, and what pages may load.

use axum::body::Body;
use enrich_store::users::Role;
use http::{Request, StatusCode};

use super::site::{PASSWORD, SHOP, Site, pages};

const ADA: &str = "ada@example.com";

#[tokio::test]
async fn every_reply_has_the_security_headers() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Admin).await;
    let link = site.invite(SHOP, "new@example.com", Role::Member).await;
    let more = [
        "/",
        "/sign-in",
        "/w/shop/sign-in",
        "/account",
        "/confirm",
        "/none",
        "/favicon.svg",
        "/reference/index.html",
        &link,
    ];
    for path in pages().iter().map(String::as_str).chain(more) {
        let page = browser.get(path).await;
        for (name, value) in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("strict-transport-security", "max-age=63072000; includeSubDomains"),
        ] {
            assert_eq!(page.header(name), value, "{path}");
        }
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        for part in ["script-src 'sha256-", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"]
        {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

#[tokio::test]
async fn transport_security_is_required_only_with_tls() {
    let site = Site::with(|config| config.is_tls = false).await;
    assert_eq!(site.browser().get("/w/shop/sign-in").await.header("strict-transport-security"), "");
}

#[tokio::test]
async fn forms_of_other_sites_are_refused() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Admin).await;
    for origin in ["https://example.com", "https://console.test.example.com", "null"] {
        for path in ["/w/shop/keys", "/w/shop/sign-in", "/sign-out", "/account/password"] {
            let page = browser.post_from(path, &[("label", "x"), ("lifetime", "")], origin).await;
            assert_eq!(page.status, StatusCode::FORBIDDEN, "{origin} {path}");
        }
    }
    let request = Request::post("/sign-out")
        .header("host", "console.test")
        .header("cookie", browser.cookie.clone().unwrap())
        .header("sec-fetch-site", "cross-site");
    assert_eq!(browser.send(request.body(Body::empty()).unwrap()).await.status, StatusCode::FORBIDDEN);
    assert_eq!(browser.get("/account").await.status, StatusCode::OK, "still signed in");
}

#[tokio::test]
async fn pages_load_and_link_nothing_outside() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Admin).await;
    for path in pages().iter().map(String::as_str).chain([
        "/account",
        "/sign-in",
        "/w/shop/sign-in",
        "/account/two-factor",
    ]) {
        let page = browser.get(path).await;
        for attribute in ["src=", "href=", "action=", "url("] {
            for (_, value) in
                page.body.match_indices(attribute).map(|(at, _)| page.body[at..].split_at(attribute.len()))
            {
                let value = value.trim_start_matches(['"', '\'']);
                let is_local = value.starts_with('/') && !value.starts_with("//") || value.starts_with('#');
                assert!(is_local, "{path}: {attribute}{}", &value[..40.min(value.len())]);
            }
        }
        for inline in [" style=\"", " onclick", " onload", "javascript:"] {
            assert!(!page.has(inline), "{path}: {inline}");
        }
    }
}

#[tokio::test]
async fn large_forms_and_other_methods_are_refused() {
    let site = Site::new().await;
    let large = "x".repeat(20_000);
    let page = site.browser().post("/w/shop/sign-in", &[("email", ADA), ("password", &large)]).await;
    assert_eq!(page.status, StatusCode::PAYLOAD_TOO_LARGE);
    let request = Request::put("/w/shop/sign-in").header("host", "console.test").body(Body::empty()).unwrap();
    assert_eq!(site.browser().send(request).await.status, StatusCode::NOT_FOUND);
    let page = site.browser().post("/w/shop/sign-in", &[("email", ADA)]).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    assert!(!page.has(PASSWORD));
}
