//! Members, invitations and the audit log.

use enrich_store::users::Role;
use http::StatusCode;

use super::site::{PASSWORD, SHOP, Site};

const BOSS: &str = "boss@example.com";
const ADA: &str = "ada@example.com";

#[tokio::test]
async fn admin_invites_a_member_with_a_link_that_is_shown_once() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    let page = boss.submit("/w/shop/members", "/w/shop/members", &[("email", ADA), ("role", "member")]).await;
    let link = page.between("id=\"link\" value=\"https://console.test", "\"").to_owned();
    let list = boss.get("/w/shop/members").await;
    assert!(list.has(ADA) && list.has("Withdraw") && !list.has(&link));
    site.browser().post(&link, &[("password", PASSWORD), ("again", PASSWORD)]).await;
    let ada = site.browser().sign_in(ADA, PASSWORD).await;
    assert!(!boss.get("/w/shop/members").await.has("Withdraw"));
    let page = ada.get("/w/shop/members").await;
    assert!(page.has(BOSS) && !page.has("Invite a member"));
}

#[tokio::test]
async fn last_admin_stays() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    let id = boss.get("/w/shop/members").await.between("/w/shop/members/", "/role").to_owned();
    for (action, form) in [("remove", &[][..]), ("role", &[("role", "member")])] {
        let page = boss.post(&format!("/w/shop/members/{id}/{action}"), form).await;
        assert_eq!(page.status, StatusCode::CONFLICT);
        assert!(page.has("A workspace needs an admin.") && !page.has("aria-invalid="), "{}", page.body);
        assert!(page.body.find("role=\"alert\"") < page.body.find("<table").or(Some(usize::MAX)));
    }
    let ada = site.signed_in(SHOP, ADA, Role::Admin).await;
    let page = boss.post(&format!("/w/shop/members/{id}/role"), &[("role", "member")]).await;
    assert_eq!(page.location(), "/w/shop/members?done=role-changed");
    assert_eq!(boss.post(&format!("/w/shop/members/{id}/remove"), &[]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(ada.post("/w/shop/members/999/remove", &[]).await.location(), "/w/shop/members?done=gone");
    // Beside another admin, an admin can leave. Its session then opens no page of the workspace.
    site.join(SHOP, "eve@example.com", Role::Admin).await;
    let id = ada.get("/w/shop/members").await.between("/w/shop/members/", "/role").to_owned();
    assert_eq!(ada.post(&format!("/w/shop/members/{id}/remove"), &[]).await.location(), "/");
}
