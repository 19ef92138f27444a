//! Signing in.

use std::time::Duration;

use enrich_store::users::{LinkPurpose, Role};
use http::StatusCode;

use super::site::{PASSWORD, SHOP, Site};

const ADA: &str = "ada@example.com";

#[tokio::test]
async fn right_password_opens_the_page_that_was_requested() {
    let site = Site::new().await;
    site.signed_in(SHOP, ADA, Role::Member).await;
    let mut browser = site.browser();
    let refused = browser.get("/w/shop/usage?days=7").await;
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

/// Also for a user who was sent a reset link. Each attempt computes one password hash, which takes longer than
/// everything else. Compares the fastest of several attempts, because other tests use the processor, too.
#[tokio::test]
async fn all_wrong_attempts_take_as_long_as_a_wrong_password() {
    let site = Site::new().await;
    let link = site.invite(SHOP, ADA, Role::Member).await;
    site.browser().post(&link, &[("password", PASSWORD), ("again", PASSWORD)]).await;
    site.join(SHOP, "bob@example.com", Role::Member).await;
    site.link(SHOP, LinkPurpose::Reset, "bob@example.com").await;
    let accounts = [(SHOP, ADA), (SHOP, "eve@example.com"), (SHOP, "bob@example.com"), ("no-workspace", ADA)];
    let mut fastest = accounts.map(|(workspace, email)| (workspace, email, Duration::MAX));
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
    for (done, text) in [("signed-out", "You are signed out"), ("sign-in-again", "this request was not made")]
    {
        let page = browser.get(&format!("/sign-in?done={done}")).await;
        assert_eq!(page.location(), format!("/w/shop/sign-in?done={done}"));
        assert!(browser.get(page.location()).await.has(text), "{done}");
    }
    assert!(browser.get("/sign-in?workspace=").await.has("name=\"workspace\""), "it can be changed");
    assert_eq!(browser.get("/sign-in?workspace=other").await.location(), "/w/other/sign-in");
    browser.cookie = None;
    assert!(browser.get("/sign-in").await.has("name=\"workspace\""));
    let invalid = browser.get("/sign-in?workspace=%2F%2Fexample.com").await;
    assert_eq!(invalid.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(invalid.has("No workspace can have this name."));
    assert_eq!(browser.get("/w/%2F/sign-in").await.status, StatusCode::NOT_FOUND);
}
