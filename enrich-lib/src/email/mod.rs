//! The email input: its syntax, its canonical form, and whether it is supported.
//!
//! Each question has its file: `syntax` what is an address (else `invalid_email`), `support` which addresses
//! are looked up (else `unsupported_email`), `canonical` which addresses are one person's.

mod canonical;
mod support;
mod syntax;

use std::borrow::Cow;
use std::fmt;

pub use support::{EmailPolicy, Unsupported};
pub use syntax::EmailFault;

/// A well-formed email address (RFC 5321, 4.1.2, `Mailbox`).
///
/// An email is a person: this type has no `Display`, and its `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Email {
    address: String,
    /// Where the `@` between local part and domain stands.
    at: usize,
}

impl Email {
    /// The longest address, in octets (RFC 5321, 4.5.3.1.3, less the angle brackets).
    pub const OCTETS_MAX: usize = 254;

    /// Reads an address as it is: no space is trimmed, nothing is decoded. Errors: what a lookup answers with 400
    /// `invalid_email`.
    pub fn parse(text: &str) -> Result<Self, EmailFault> {
        let at = syntax::check(text)?;
        Ok(Self { address: text.to_owned(), at })
    }

    /// The address as it was given.
    pub fn as_str(&self) -> &str {
        &self.address
    }

    /// The part before the `@`.
    pub fn local_part(&self) -> &str {
        &self.address[..self.at]
    }

    /// The part after the `@`.
    pub fn domain(&self) -> &str {
        &self.address[self.at + 1..]
    }

    /// The one form of all addresses that reach the same mailbox: what a directory is keyed by, never shown.
    pub fn canonical(&self) -> String {
        canonical::canonical(self.local_part(), self.domain())
    }
}

/// In lower case, which most addresses are already.
fn lower(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        text.to_ascii_lowercase().into()
    } else {
        text.into()
    }
}

impl fmt::Debug for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Email(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_email_hides_in_debug_output() {
        assert_eq!(format!("{:?}", Email::parse("ada@gmail.com").unwrap()), "Email(…)");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = Email::parse(&text).map(|email| (email.canonical(), EmailPolicy::default().check(&email)));
        }

        #[test]
        fn no_text_with_the_parts_of_an_address_makes_the_parser_panic(text in r#"[a@.\\"\[\]IPv6:0-9é-]{0,40}"#) {
            if let Ok(email) = Email::parse(&text) {
                prop_assert_eq!(format!("{}@{}", email.local_part(), email.domain()), text);
                let _ = (email.canonical(), EmailPolicy::default().check(&email));
            }
        }

        #[test]
        fn a_plain_address_survives_the_round_trip(
            local in r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,20}(\.[a-z0-9]{1,10}){0,3}",
            domain in r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z][a-z0-9]{0,10}){1,3}",
        ) {
            let email = Email::parse(&format!("{local}@{domain}")).unwrap();
            prop_assert_eq!((email.local_part(), email.domain()), (local.as_str(), domain.as_str()));
        }

        #[test]
        fn the_canonical_form_is_an_address_and_its_own_canonical_form(
            local in r"[a-zA-Z0-9+]{1,20}(\.[a-z0-9+]{1,10}){0,3}",
            domain in prop_oneof!["[a-zA-Z]{1,9}\\.[a-z]{2,4}", Just("GMail.com".into()), Just("googlemail.com".into())],
        ) {
            let once = Email::parse(&format!("{local}@{domain}")).unwrap().canonical();
            let twice = Email::parse(&once).unwrap().canonical();
            prop_assert_eq!(once, twice);
        }
    }
}
