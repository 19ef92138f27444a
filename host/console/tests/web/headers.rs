//! Security headers, cross-site requests, and what pages may load.

use axum::body::Body;
use enrich_store::users::Role;
use http::Request;
use http::header::SET_COOKIE;

use super::site::{PASSWORD, Page, SHOP, Site};

const HEADERS: [(&str, &str); 7] = [
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("strict-transport-security", "max-age=63072000; includeSubDomains"),
];

/// Checks what every reply fulfils: its headers and cookies, and what its page loads and contains.
pub fn check(request: &str, page: &Page) {
    for (name, value) in HEADERS {
        assert_eq!(page.header(name), value, "{name} of {request}");
    }
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    for part in ["script-src 'sha256-", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for cookie in page.headers.get_all(SET_COOKIE) {
        let cookie = cookie.to_str().unwrap();
        let is_bound = cookie.starts_with("__Host-")
            && cookie.contains("; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=");
        assert!(is_bound && cookie.matches(';').count() == 5, "{request}: {cookie}");
    }
    if page.status == 503 {
        assert_eq!(page.header("retry-after").is_empty(), request == "POST /sign-out", "{request}");
        if request == "POST /sign-out" {
            let is_removed = page.header("set-cookie").starts_with("__Host-session=; ");
            assert!(is_removed && page.header("clear-site-data").contains("cache"), "{:?}", page.headers);
            assert!(page.has("may still be valid"), "{}", page.body);
        }
    }
    assert!(!page.has(PASSWORD) && !page.has("lantern"), "{request} returns a password: {}", page.body);
    // The pages of the reference have relative links, and one to the start page.
    if request.contains(" /reference") {
        assert!(page.body.is_empty() || page.has("<a href=\"/\">"), "{request}: {}", page.body);
    } else {
        check_links(request, page);
    }
    if [401, 422].contains(&page.status.as_u16()) {
        let fields = page.body.split("<input").map(|field| field.split('>').next().unwrap());
        let focused: Vec<_> = fields.filter(|field| field.contains(" autofocus")).collect();
        assert!(
            matches!(focused[..], [field] if field.contains(" aria-invalid=\"true\"")),
            "{request}: {focused:?}"
        );
    }
    if page.status.is_client_error() && !request.starts_with("HEAD") {
        assert!(page.has("<!doctype html>") && page.has("<h1>"), "{request}: {}", page.body);
    }
}

/// Checks that a page loads and links nothing outside.
fn check_links(request: &str, page: &Page) {
    for attribute in ["src=", "href=", "action=", "url("] {
        for value in page.body.split(attribute).skip(1) {
            let value = value.trim_start_matches(['"', '\'']);
            let is_path = value.starts_with('/') && !value.starts_with("//") || value.starts_with("..\"");
            let is_local = is_path || value.starts_with('#');
            assert!(is_local, "{request}: {attribute}{:.40}", value);
        }
    }
    for inline in [" style=\"", " onclick", " onload", "javascript:"] {
        assert!(!page.has(inline), "{request}: {inline}");
    }
}

#[tokio::test]
async fn transport_security_is_required_only_with_tls() {
    let site = Site::with(|config| config.is_tls = false).await;
    assert_eq!(site.browser().get("/w/shop/sign-in").await.header("strict-transport-security"), "");
}

#[tokio::test]
async fn forms_of_similar_origins_are_refused() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, "ada@example.com", Role::Admin).await;
    for origin in ["https://console.test.example.com", "null"] {
        assert_eq!(browser.post_from("/sign-out", &[], origin).await.status, 403, "{origin}");
    }
    let request = Request::post("/sign-out")
        .header("host", "console.test")
        .header("cookie", browser.cookie.clone().unwrap())
        .header("sec-fetch-site", "cross-site");
    assert_eq!(browser.send(request.body(Body::empty()).unwrap()).await.status, 403);
    assert_eq!(browser.get("/account").await.status, 200, "still signed in");
    // A proxy may send the name of its upstream as the host.
    let request = browser.request("POST", "/sign-out").header("origin", "https://console.test");
    let mut request = request.body(Body::empty()).unwrap();
    request.headers_mut().insert("host", "127.0.0.1:8081".parse().unwrap());
    assert_eq!(browser.send(request).await.status, 303);
}
