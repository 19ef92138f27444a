//! Members, invitations and the audit log.

use enrich_store::users::Role;
use http::StatusCode;

use super::site::{Browser, PASSWORD, SHOP, Site};

const BOSS: &str = "boss@example.com";
const ADA: &str = "ada@example.com";
const INVITE: &str = "/w/shop/members/invite";

#[tokio::test]
async fn admin_invites_a_member_with_a_link_that_is_shown_once() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    let page = boss.submit(INVITE, "/w/shop/members", &[("email", ADA), ("role", "member")]).await;
    let link = page.between("aria-label=\"Invitation link\">https://console.test", "<").to_owned();
    let list = boss.get("/w/shop/members").await;
    assert!(list.has(ADA) && list.has("Withdraw") && !list.has(&link) && list.has(INVITE));
    site.browser().post(&link, &[("password", PASSWORD), ("again", PASSWORD)]).await;
    let ada = site.browser().sign_in(ADA, PASSWORD).await;
    assert!(!boss.get("/w/shop/members").await.has("Withdraw"));
    let page = ada.get("/w/shop/members").await;
    assert!(page.has(BOSS) && !page.has(INVITE));
    let form = [("email", "grace hopper"), ("role", "admin")];
    let refused = boss.submit(INVITE, "/w/shop/members", &form).await;
    let asked = boss.get(&format!("/confirm?next={INVITE}?done=not-changed")).await;
    assert!(asked.has("href=\"/w/shop/members\">Cancel"), "{}", asked.body);
    assert!(refused.has("value=\"grace hopper\"") && refused.has("selected>Admin"), "{}", refused.body);
}

/// Returns the number of the first member in the list.
async fn first_id(browser: &Browser) -> String {
    let list = browser.get("/w/shop/members").await.body;
    list.split_once("/role?").unwrap().0.rsplit_once('/').unwrap().1.to_owned()
}

#[tokio::test]
async fn last_admin_stays() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    let id = first_id(&boss).await;
    for (action, form) in [("remove", &[][..]), ("role", &[("role", "member")])] {
        let page = boss.post(&format!("/w/shop/members/{id}/{action}"), form).await;
        assert_eq!(page.status, StatusCode::CONFLICT);
        assert!(page.has("A workspace needs an admin.") && !page.has("aria-invalid="), "{}", page.body);
        let asked = boss.get(&format!("/w/shop/members/{id}/{action}")).await;
        assert!(asked.has("This is you.") && asked.has("open invitations are withdrawn"), "{}", asked.body);
    }
    let ada = site.signed_in(SHOP, ADA, Role::Admin).await;
    let page = boss.post(&format!("/w/shop/members/{id}/role"), &[("role", "member")]).await;
    assert_eq!(page.location(), "/w/shop/members?done=role-changed");
    assert_eq!(boss.post(&format!("/w/shop/members/{id}/remove"), &[]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(ada.post("/w/shop/members/999/remove", &[]).await.location(), "/w/shop/members?done=gone");
    // Beside another admin, an admin can leave. Its session then opens no page of the workspace.
    site.join(SHOP, "eve@example.com", Role::Admin).await;
    let path = format!("/w/shop/members/{}/remove", first_id(&ada).await);
    assert_eq!(ada.post(&path, &[]).await.location(), "/w/shop/sign-in?done=left");
}
