//! Members, invitations and the audit log.

use enrich_store::users::Role;
use http::StatusCode;

use super::site::{PASSWORD, SHOP, Site, id};

const BOSS: &str = "boss@example.com";
const ADA: &str = "ada@example.com";

#[tokio::test]
async fn admin_invites_a_member_with_a_link_that_is_shown_once() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    let page = boss.post("/w/shop/members", &[("email", ADA), ("role", "member")]).await;
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
async fn invitation_of_a_member_or_of_no_email_is_refused_beside_the_field() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    for (email, error) in
        [(BOSS, "is a member already"), ("no-email", "not an email address"), ("", "not an email address")]
    {
        let page = boss.post("/w/shop/members", &[("email", email), ("role", "member")]).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(page.has(error) && page.has("aria-invalid"), "{}", page.body);
    }
}

#[tokio::test]
async fn last_admin_stays() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    let id = boss.get("/w/shop/members").await.between("/w/shop/members/", "/role").to_owned();
    for (action, form) in [("remove", &[][..]), ("role", &[("role", "member")])] {
        let page = boss.post(&format!("/w/shop/members/{id}/{action}"), form).await;
        assert_eq!(page.status, StatusCode::CONFLICT);
        assert!(page.has("A workspace needs an admin."), "{}", page.body);
    }
    let ada = site.signed_in(SHOP, ADA, Role::Admin).await;
    let page = boss.post(&format!("/w/shop/members/{id}/role"), &[("role", "member")]).await;
    assert_eq!(page.location(), "/w/shop/members?done=role-changed");
    assert_eq!(boss.post(&format!("/w/shop/members/{id}/remove"), &[]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(ada.post("/w/shop/members/999/remove", &[]).await.status, StatusCode::NOT_FOUND);
    // Beside another admin, an admin can leave. Its session then opens no page of the workspace.
    site.join(SHOP, "eve@example.com", Role::Admin).await;
    let id = ada.get("/w/shop/members").await.between("/w/shop/members/", "/role").to_owned();
    assert_eq!(ada.post(&format!("/w/shop/members/{id}/remove"), &[]).await.location(), "/");
}

#[tokio::test]
async fn audit_log_has_author_time_address_and_subject() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    boss.create_key("CRM sync", "").await;
    boss.post("/w/shop/members", &[("email", ADA), ("role", "member")]).await;
    let page = boss.get("/w/shop/audit-log").await;
    for part in [
        "operator",
        BOSS,
        "192.0.2.1",
        "Created a key",
        "CRM sync",
        "Invited a member",
        ADA,
        "Signed in",
        "Joined",
        "2027-01-15",
    ] {
        assert!(page.has(part), "{part}: {}", page.body);
    }
    assert!(!boss.get("/w/shop/audit-log").await.has("theirs"));
}

#[tokio::test]
async fn audit_log_of_50_events_is_one_page() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    let before = site.admin().await.audit_log(&id(SHOP), None, 50).await.unwrap().len();
    for n in before..50 {
        site.create_key(SHOP, &format!("key number {n}")).await;
    }
    assert!(!boss.get("/w/shop/audit-log").await.has("Older"));
    site.create_key(SHOP, "one more").await;
    assert!(boss.get("/w/shop/audit-log").await.has("Older"));
}

#[tokio::test]
async fn audit_log_is_paged_from_the_newest() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    for n in 0..60 {
        site.create_key(SHOP, &format!("key number {n}")).await;
    }
    let first = boss.get("/w/shop/audit-log").await;
    assert!(first.has("key number 59") && !first.has("key number 5<") && first.has("Older"));
    let older = format!("/w/shop/audit-log?before={}", first.between("audit-log?before=", "\""));
    let second = boss.get(&older).await;
    assert!(second.has("key number 0") && second.has("Created the workspace") && second.has("Newest"));
    assert!(!second.has("Older") && !second.has("key number 59"));
    for n in 0..60 {
        let event = format!("(key number {n})");
        assert!(first.has(&event) != second.has(&event), "{event} is on one page");
    }
}

#[tokio::test]
async fn list_has_pages_of_50_members() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    for n in 0..55 {
        site.join(SHOP, &format!("user{n:02}@example.com"), Role::Member).await;
    }
    let first = boss.get("/w/shop/members").await;
    assert!(first.has(BOSS) && first.has("user48@") && !first.has("user49@") && first.has("?page=1"));
    let second = boss.get("/w/shop/members?page=1").await;
    assert!(
        second.has("user49@") && second.has("user54@") && !second.has("user48@") && second.has("?page=0")
    );
}
