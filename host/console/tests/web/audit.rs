//! The audit log contains each change that a user makes, and each attempt that failed.

use std::time::{Duration, Instant};

use enrich_store::users::{LinkPurpose, Role};

use super::site::{Browser, PASSWORD, SHOP, Site, code, id};

const BOSS: &str = "boss@example.com";
const ADA: &str = "ada@example.com";
const NEW: &str = "lantern cobalt river";

/// A failed attempt to sign in is recorded after up to a second.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The events of the workspace `shop` that no check has read.
struct Log<'a> {
    site: &'a Site,
    last: i64,
}

impl<'a> Log<'a> {
    /// Begins after the events of a preparation.
    async fn new(site: &'a Site) -> Self {
        let events = site.admin().await.audit_log(&id(SHOP), None, 1).await.unwrap();
        Self { site, last: events[0].number }
    }

    /// Checks the authors and the actions of all further events, the oldest one first.
    async fn has(&mut self, expected: &[(&str, &str)]) {
        self.check(expected, |_| {}).await;
    }

    /// Checks all further events. Attempts to sign in are recorded after random times.
    async fn has_in_any_order(&mut self, expected: &[(&str, &str)]) {
        self.check(expected, |events| events.sort_unstable_by(|a, b| a.1.cmp(b.1))).await;
    }

    async fn check(&mut self, expected: &[(&str, &str)], order: impl Fn(&mut Vec<(&str, &str)>)) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let mut events = self.site.admin().await.audit_log(&id(SHOP), None, 100).await.unwrap();
            events.retain(|event| event.number > self.last);
            events.reverse();
            let mut found: Vec<_> = events.iter().map(|event| (&*event.actor, &*event.action)).collect();
            order(&mut found);
            if found.len() >= expected.len() || Instant::now() > deadline {
                assert_eq!(found, expected);
                self.last = events.last().map_or(self.last, |event| event.number);
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn each_change_of_a_key_is_recorded() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    let key = site.create_key(SHOP, "crm").await;
    let mut log = Log::new(&site).await;
    boss.create_key("shop", "").await;
    log.has(&[(BOSS, "key.created")]).await;
    for (action, event) in [("disable", "key.disabled"), ("enable", "key.enabled")] {
        boss.post(&format!("/w/shop/keys/{key}/{action}"), &[]).await;
        log.has(&[(BOSS, event)]).await;
    }
    let rotate = format!("/w/shop/keys/{key}/rotate");
    boss.submit(&rotate, &rotate, &[("grace", "24")]).await;
    log.has(&[(BOSS, "key.rotated")]).await;
    boss.post(&format!("/w/shop/keys/{key}/revoke"), &[]).await;
    log.has(&[(BOSS, "key.revoked")]).await;
}

#[tokio::test]
async fn each_change_of_a_member_is_recorded() {
    let site = Site::new().await;
    let boss = site.signed_in(SHOP, BOSS, Role::Admin).await;
    let mut log = Log::new(&site).await;
    let invitation = [("email", ADA), ("role", "member")];
    let page = boss.post("/w/shop/members", &invitation).await;
    log.has(&[(BOSS, "member.invited")]).await;
    let invited = page.between("/members/invitations/", "/delete");
    boss.post(&format!("/w/shop/members/invitations/{invited}/delete"), &[]).await;
    log.has(&[(BOSS, "member.invitation_revoked")]).await;
    let page = boss.post("/w/shop/members", &invitation).await;
    let link = page.between("id=\"link\" value=\"https://console.test", "\"");
    site.browser().post(link, &[("password", PASSWORD), ("again", PASSWORD)]).await;
    log.has(&[(BOSS, "member.invited"), (ADA, "member.joined")]).await;
    let ada = site.admin().await.user_by_email(&id(SHOP), &ADA.parse().unwrap()).await.unwrap().unwrap();
    let ada = format!("/w/shop/members/{}", ada.id.0);
    boss.post(&format!("{ada}/role"), &[("role", "admin")]).await;
    log.has(&[(BOSS, "member.role_changed")]).await;
    boss.post(&format!("{ada}/remove"), &[]).await;
    log.has(&[(BOSS, "member.removed")]).await;
}

#[tokio::test]
async fn each_session_and_each_failed_attempt_is_recorded() {
    let site = Site::new().await;
    site.join(SHOP, ADA, Role::Member).await;
    let mut log = Log::new(&site).await;
    let mut ada = site.browser().sign_in(ADA, PASSWORD).await;
    log.has(&[(ADA, "user.signed_in")]).await;
    site.browser().post("/w/shop/sign-in", &[("email", ADA), ("password", "wrong")]).await;
    log.has(&[("not signed in", "user.attempt_failed")]).await;
    ada.post("/confirm", &[("password", "wrong")]).await;
    log.has(&[(ADA, "user.attempt_failed")]).await;
    ada.post("/account/password", &[("current", "wrong"), ("password", NEW), ("again", NEW)]).await;
    log.has(&[(ADA, "user.attempt_failed")]).await;
    site.browser().sign_in(ADA, PASSWORD).await;
    ada.post("/account/sessions/end-others", &[]).await;
    log.has(&[(ADA, "user.signed_in"), (ADA, "user.sessions_ended")]).await;
    site.browser().sign_in(ADA, PASSWORD).await;
    let page = ada.get("/account").await;
    ada.post(&format!("/account/sessions/{}/end", page.between("/account/sessions/", "/end\"")), &[]).await;
    log.has(&[(ADA, "user.signed_in"), (ADA, "user.sessions_ended")]).await;
    let form = [("current", PASSWORD), ("password", NEW), ("again", NEW)];
    ada.keep(&ada.post("/account/password", &form).await);
    log.has(&[(ADA, "user.password_changed")]).await;
    ada.post("/sign-out", &[]).await;
    log.has(&[(ADA, "user.sessions_ended")]).await;
    let reset = format!("/reset/{}", site.link(SHOP, LinkPurpose::Reset, ADA).await);
    site.browser().post(&reset, &[("password", PASSWORD), ("again", PASSWORD)]).await;
    log.has(&[("operator", "user.reset"), (ADA, "user.password_changed")]).await;
}

#[tokio::test]
async fn each_use_of_a_second_factor_is_recorded() {
    let site = Site::new().await;
    let mut ada = site.signed_in(SHOP, ADA, Role::Member).await;
    let mut log = Log::new(&site).await;
    let setup = ada.get("/account/two-factor").await;
    let secret = setup.between("Key: <code class=\"wrap\">", "<").to_owned();
    let field = setup.between("name=\"secret\" value=\"", "\"");
    let page = ada.post("/account/two-factor", &[("secret", field), ("code", &code(&site, &secret))]).await;
    ada.keep(&page);
    log.has(&[(ADA, "user.totp_enabled")]).await;
    let codes = page.between("id=\"codes\" aria-label=\"Recovery codes\">", "</pre>");
    let recovery_code = codes.split_whitespace().next().unwrap();
    let pending = pending(&site).await;
    pending.post("/w/shop/sign-in/code", &[("code", "000000")]).await;
    log.has(&[("not signed in", "user.attempt_failed")]).await;
    pending.post("/w/shop/sign-in/code", &[("code", recovery_code)]).await;
    log.has(&[(ADA, "user.recovery_code_used"), (ADA, "user.signed_in")]).await;
    ada.post("/account/two-factor/disable", &[("current", "000000")]).await;
    log.has(&[(ADA, "user.attempt_failed")]).await;
    site.advance(Duration::from_secs(60)); // a code is valid once
    ada.post("/account/two-factor/disable", &[("current", &code(&site, &secret))]).await;
    log.has(&[(ADA, "user.totp_disabled")]).await;
}

#[tokio::test]
async fn blocked_attempts_are_recorded_once_for_an_account_and_window() {
    let site = Site::new().await;
    let ada = site.signed_in(SHOP, ADA, Role::Member).await;
    site.advance(Duration::from_secs(15 * 60));
    let mut log = Log::new(&site).await;
    for _ in 0..13 {
        site.browser().post("/w/shop/sign-in", &[("email", ADA), ("password", "wrong")]).await;
    }
    let failed = ("not signed in", "user.attempt_failed");
    let mut expected = vec![failed; 10];
    expected.push(("not signed in", "user.attempts_blocked"));
    log.has_in_any_order(&expected).await;
    for _ in 0..12 {
        ada.post("/confirm", &[("password", "wrong")]).await;
    }
    let mut expected = vec![(ADA, "user.attempt_failed"); 10];
    expected.push((ADA, "user.attempts_blocked"));
    log.has_in_any_order(&expected).await;
}

/// Returns a browser in which Ada has entered the password, and not the code.
async fn pending(site: &Site) -> Browser {
    let mut browser = site.browser();
    browser.keep(&browser.post("/w/shop/sign-in", &[("email", ADA), ("password", PASSWORD)]).await);
    browser
}
