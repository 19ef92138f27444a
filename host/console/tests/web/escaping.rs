//! Hostile texts on pages.

use enrich_store::users::Role;
use http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::site::{SHOP, Site};

/// Returns the tags of a page, without their attributes' values.
fn tags(page: &str) -> Vec<String> {
    let mut tags = Vec::new();
    let mut rest = page;
    while let Some((_, from)) = rest.split_once('<') {
        let (tag, after) = from.split_once('>').unwrap();
        tags.push(tag.split('"').step_by(2).collect::<Vec<_>>().join("\"\""));
        rest = after;
    }
    tags
}

/// A name that tries to leave its place in a page, and arbitrary ones.
fn hostile() -> impl Strategy<Value = String> {
    let attack = prop_oneof![
        Just("<script>alert(1)</script>".to_owned()),
        Just("\"><img src=x onerror=alert(1)>".to_owned()),
        Just("'-alert(1)-'".to_owned()),
        Just("</title><svg onload=alert(1)>".to_owned()),
        Just("</textarea></style></script>".to_owned()),
        Just("{{ 7 * 7 }}".to_owned()),
        Just("&lt;b&gt;&#x3c;".to_owned()),
        "[<>\"'&/=a-z ]{1,60}",
        "\\PC{1,60}",
    ];
    // An email would be invited, instead of refused.
    attack.prop_filter("a name has visible characters, and is no email", |name| {
        enrich_store::records::label(name).is_some()
            && name.parse::<enrich_store::users::UserEmail>().is_err()
    })
}

/// Renders all pages that show a name, with a harmless name and then with hostile ones: the tags must be the
/// same.
#[test]
fn names_never_change_the_structure_of_a_page() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rendered = |name: &str| {
        runtime.block_on(async {
            let site = Site::new().await;
            let browser = site.signed_in(SHOP, "ada@example.com", Role::Admin).await;
            let created = browser.create_key(name, "").await;
            assert_eq!(created.status, StatusCode::OK);
            let list = browser.get("/w/shop/keys").await;
            let id = list.between("/w/shop/keys/key_", "/rotate").to_owned();
            let mut pages = vec![created.body, list.body];
            for path in
                ["audit-log".to_owned(), format!("keys/key_{id}/revoke"), format!("keys/key_{id}/rotate")]
            {
                pages.push(browser.get(&format!("/w/shop/{path}")).await.body);
            }
            let error = [("email", name), ("role", "member")];
            pages.push(browser.post("/w/shop/members", &error).await.body);
            pages.push(
                site.browser()
                    .post("/w/shop/sign-in", &[("email", name), ("password", name), ("next", name)])
                    .await
                    .body,
            );
            let agent = http::Request::get("/account").header("cookie", browser.cookie.clone().unwrap());
            pages.push(browser.send(agent.body(axum::body::Body::empty()).unwrap()).await.body);
            pages
        })
    };
    let expected: Vec<_> = rendered("CRM sync").iter().map(|page| tags(page)).collect();
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    runner
        .run(&hostile(), |name| {
            for (page, expected) in rendered(&name).iter().zip(&expected) {
                prop_assert_eq!(&tags(page), expected, "{}", page);
            }
            Ok(())
        })
        .unwrap();
}
