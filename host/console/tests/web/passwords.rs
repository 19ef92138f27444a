//! Changing the password.

use enrich_store::users::Role;

use super::site::{PASSWORD, SHOP, Site};

const ADA: &str = "ada@example.com";

#[tokio::test]
async fn long_passwords_with_any_characters_are_accepted() {
    let site = Site::new().await;
    let browser = site.signed_in(SHOP, ADA, Role::Member).await;
    let long = "Ärger über 7 grüne Schränke & 'Türen' ".repeat(3);
    let form = [("current", PASSWORD), ("password", &long), ("again", &long)];
    assert_eq!(browser.post("/account/password", &form).await.location(), "/account?done=password-changed");
    site.browser().sign_in(ADA, &long).await;
    let decomposed = long.replace('Ä', "A\u{308}").replace('ü', "u\u{308}").replace('7', "７");
    site.browser().sign_in(ADA, &decomposed).await;
}
