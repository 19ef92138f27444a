//! The second factor: codes of an authenticator app (RFC 6238).

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::User;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use qrcode::QrCode;
use qrcode::render::svg;
use totp_rs::{Builder, Secret, Totp};

/// The name of the service in the authenticator app.
const ISSUER: &str = "Person enrichment";

/// Generates the secret of a new authenticator: 20 bytes, as RFC 4226 recommends.
pub(crate) fn generate() -> Vec<u8> {
    rand::random::<[u8; 20]>().to_vec()
}

/// Returns the time step of a code that is valid at `now`, or one step (30 s) before or after.
pub(crate) fn step_of(secret: &[u8], code: &str, now: Timestamp) -> Option<u64> {
    let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    totp(secret)?.check(&code, now.unix_ms() / 1_000)
}

/// Returns the secret for users who type it into the app.
pub(crate) fn base32(secret: &[u8]) -> String {
    Secret::from(secret.to_vec()).to_base32()
}

/// Returns the QR code of the secret, as SVG.
pub(crate) fn qr_code(secret: &[u8], user: &User) -> String {
    let url = url(secret, user.email.as_str(), &user.workspace);
    let code = QrCode::new(url.as_bytes()).expect("an email and a secret fit into a QR code");
    let svg = code.render::<svg::Color<'_>>().min_dimensions(200, 200).build();
    // Without the XML declaration, the SVG can be part of a page.
    svg.find("<svg").map_or(String::new(), |start| svg[start..].to_owned())
}

/// Returns the URL of the secret. The name of its entry in the app has the workspace, because an address can have
/// a user in several.
fn url(secret: &[u8], email: &str, workspace: &WorkspaceId) -> String {
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (issuer, name) = (encode(ISSUER), encode(&format!("{email} ({workspace})")));
    format!("otpauth://totp/{issuer}:{name}?secret={}&issuer={issuer}", base32(secret))
}

/// Encodes a secret for a hidden field of a form.
pub(crate) fn to_field(secret: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(secret)
}

/// Decodes a hidden field.
pub(crate) fn from_field(field: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(field).ok().filter(|secret| secret.len() == 20)
}

fn totp(secret: &[u8]) -> Option<Totp> {
    Builder::new().with_secret(secret.to_vec()).with_skew(1).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238, appendix B, shortened to 6 digits.
    #[test]
    fn accepts_codes_of_the_rfc_within_one_step() {
        let secret = b"12345678901234567890";
        let at = |seconds: u64| Timestamp::from_unix_ms(seconds * 1_000);
        assert_eq!(step_of(secret, "287082", at(59)), Some(1));
        assert_eq!(step_of(secret, "081 804", at(1_111_111_109)), Some(37_037_036));
        assert_eq!(step_of(secret, "287082", at(89)), Some(1));
        assert_eq!(step_of(secret, "287082", at(90)), None);
        for wrong in ["", "28708", "2870822", "287083", "28708x"] {
            assert_eq!(step_of(secret, wrong, at(59)), None, "{wrong}");
        }
    }

    #[test]
    fn url_names_the_user_and_the_workspace() {
        let url = url(b"12345678901234567890", "ada+\"<x>@example.com", &"shop".parse().unwrap());
        assert_eq!(
            url,
            "otpauth://totp/Person%20enrichment:ada%2B%22%3Cx%3E%40example%2Ecom%20%28shop%29\
             ?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=Person%20enrichment"
        );
    }
}
