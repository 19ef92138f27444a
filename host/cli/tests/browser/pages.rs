//! Each page on a desktop, a tablet and a phone, light and dark.

use fantoccini::Locator;

use crate::chromium::{Browser, Screen};
use crate::site::{EMAIL, PASSWORD, Site};

const SCREENS: [Screen; 5] = [
    Screen { name: "desktop", width: 1_280, is_dark: false },
    Screen { name: "desktop-dark", width: 1_280, is_dark: true },
    // The least width of a table with columns, which is beside the navigation.
    Screen { name: "tablet", width: 1_025, is_dark: false },
    Screen { name: "phone", width: 320, is_dark: false },
    Screen { name: "phone-dark", width: 320, is_dark: true },
];

const ADA: &str = "ada.of.the.analytical.engines@example.com";

/// The longest name of a key.
const LABEL: &str =
    "CRM_sync_for_the_newsletter_and_all_other_integrations_of_the_shop_in_Germany_Austria_and_Switzerlan";

/// Checks a page on all screens, and writes screenshots.
async fn check(browser: &Browser, name: &str, errors: &mut Vec<String>) {
    for screen in SCREENS {
        browser.show_as(screen).await;
        let overflow = browser.overflow().await;
        if overflow > 0 {
            errors.push(format!("{name} on {}: {overflow} px too wide", screen.name));
        }
        if screen.width < 600 {
            for target in browser.small_targets().await {
                errors.push(format!("{name} on {}: {target} is too small for a finger", screen.name));
            }
        }
        for violation in browser.violations().await {
            errors.push(format!("{name} on {}: {violation}", screen.name));
        }
        browser.screenshot(&format!("{name}-{}", screen.name)).await;
    }
}

#[tokio::test]
async fn pages_are_accessible_and_fit_all_screens() {
    let (site, browser) = (Site::on_sqlite(), Browser::start().await);
    let mut errors = Vec::new();
    let page = |path: &str| format!("{}{path}", site.url);
    macro_rules! check {
        ($name:literal) => {
            check(&browser, $name, &mut errors).await
        };
        ($name:literal, $path:expr) => {{
            browser.open(&page($path)).await;
            check(&browser, $name, &mut errors).await
        }};
    }
    browser.open(&site.invite(ADA, "admin")).await;
    check!("join");
    check!("link-ended", "/join/0");
    check!("workspace", "/sign-in");
    check!("sign-in", "/w/shop/sign-in");
    browser.type_into("#email", ADA).await;
    browser.type_into("#password", "wrong").await;
    browser.press("Sign in").await;
    browser.find(".error").await;
    check!("sign-in-error");
    site.sign_in(&browser, ADA, "admin").await;
    check!("keys-empty");
    check!("usage-empty", "/w/shop/usage");
    check!("not-found", "/w/none/keys");
    check!("key-new", "/w/shop/keys/new");
    check!("key-new-test", "/w/shop/keys/new?kind=test");
    browser.type_into("#label", "Tests").await;
    browser.press("Create key").await;
    browser.find("#key").await;
    check!("key-created-test");
    browser.open(&page("/w/shop/keys/new")).await;
    browser.type_into("#label", LABEL).await;
    browser.press("Create key").await;
    browser.find("#key").await;
    check!("key-created");
    let key = browser.find("#key").await.text().await.unwrap();
    for n in 0..40 {
        site.lookup(&key, if n % 3 == 0 { "someone@gmail.com" } else { EMAIL });
    }
    site.lookup(&key, "no email");
    for label in ["Webshop", "Data warehouse"] {
        site.enrich.ok(&["key", "create", "shop", label, "--expires", "90d"]);
    }
    site.enrich.ok(&["key", "set", &site.enrich.key_id("shop", 2), "--disable"]);
    site.enrich.ok(&["key", "revoke", &site.enrich.key_id("shop", 3)]);
    check!("keys", "/w/shop/keys");
    browser.press(&format!("Rotate {LABEL}")).await;
    browser.find("#grace").await;
    check!("key-rotate");
    browser.open(&page("/w/shop/keys")).await;
    browser.press("Revoke Webshop").await;
    browser.wait_for_heading("Revoke “Webshop”?").await;
    check!("key-revoke");
    let has_refused = async || browser.client.find(Locator::Css("rect.refused")).await.is_ok();
    browser.open_until(&page("/w/shop/usage?days=7"), has_refused).await;
    check!("usage");
    let last = "const bars = document.querySelectorAll('rect'), chart = document.querySelector('.chart');
        return bars[bars.length - 1].getBoundingClientRect().right <= chart.getBoundingClientRect().right";
    let is_visible = browser.client.execute(last, vec![]).await.unwrap();
    assert_eq!(is_visible, true, "the chart shows the newest day on a phone");
    site.enrich.ok(&["workspace", "set", "shop", "--low-balance", "1000"]);
    check!("usage-few-credits", "/w/shop/usage");
    check!("member-invite", "/w/shop/members/invite");
    browser.type_into("#email", "grace hopper").await;
    browser.press("Create invitation").await;
    browser.find("#error").await;
    check!("member-invite-error");
    browser.find("#email").await.clear().await.unwrap();
    browser.type_into("#email", "grace.hopper@example.com").await;
    browser.press("Create invitation").await;
    browser.find("#link").await;
    check!("members-invited");
    browser.press(&format!("Make member: {ADA}")).await;
    browser.wait_for_heading(&format!("Make {ADA} a member?")).await;
    check!("member-role");
    browser.press("Cancel").await;
    browser.press(&format!("Remove {ADA}")).await;
    browser.wait_for_heading(&format!("Remove {ADA}?")).await;
    check!("member-remove");
    check!("audit-log", "/w/shop/audit-log");
    check!("quick-start", "/w/shop/quick-start");
    browser.press("Send").await;
    browser.find("#reply").await;
    check!("quick-start-tried");
    check!("reference", "/reference");
    check!("reference-error", "/reference/errors/unsupported_email.html");
    check!("account", "/account");
    browser.type_into("#current", "wrong").await;
    browser.type_into("#password", "password").await;
    browser.type_into("#again", "password").await;
    browser.press("Change password").await;
    browser.find("#password-error").await;
    check!("account-error");
    check!("confirm", "/confirm?next=/account");
    check!("two-factor", "/account/two-factor");
    let secret = browser.find("code.wrap").await.text().await.unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let secret = totp_rs::Secret::try_from_base32(secret).unwrap();
    let code = totp_rs::Builder::new().with_secret(secret).build().unwrap().generate(now).to_string();
    browser.type_into("#code", &code).await;
    browser.press("Turn on").await;
    browser.find("#codes").await;
    check!("recovery-codes");
    let recovery_codes = browser.find("#codes").await.text().await.unwrap();
    let recovery_code = recovery_codes.split_whitespace().next().unwrap();
    check!("account-two-factor", "/account");
    check!("two-factor-again", "/account/two-factor");
    check!("two-factor-disable", "/account/two-factor/disable");
    browser.press("Sign out").await;
    browser.wait_for_heading("Sign in").await;
    browser.type_into("#email", ADA).await;
    browser.type_into("#password", PASSWORD).await;
    browser.press("Sign in").await;
    browser.wait_for_heading("Enter your code").await;
    check!("code");
    browser.type_into("#code", "000000").await;
    browser.press("Sign in").await;
    browser.find(".error").await;
    check!("code-error");
    browser.type_into("#code", recovery_code).await;
    browser.press("Sign in").await;
    browser.wait_for_heading("API keys").await;
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
