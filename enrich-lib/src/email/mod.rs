//! Email addresses: syntax, canonical form and supported addresses.
//!
//! Each check has its own file: `syntax` decides if a text is an address (else `invalid_email`), `support`
//! decides if an address is supported (else `unsupported_email`), `canonical` decides which addresses belong
//! to one person, and `opt_out` decides the same, more widely, for people who opted out.

mod canonical;
mod classes;
mod opt_out;
mod support;
mod syntax;

use std::borrow::Cow;

pub use support::{EmailPolicy, Unsupported};
pub use syntax::EmailError;

use self::classes::{Class, NON_ASCII, PLUS, UPPER_CASE};

/// A well-formed email address (RFC 5321, 4.1.2, `Mailbox`).
///
/// An email is personal data: this type has no `Display`, and its `Debug` redacts it.
#[derive(Clone, PartialEq, Eq)]
pub struct Email {
    address: String,
    /// The position of the `@` between the local part and the domain.
    at: usize,
    /// The classes of its bytes. Most addresses have only lower-case letters, and need no conversions and no
    /// searches.
    classes: Class,
}

impl Email {
    /// The maximum length of an address, in octets (RFC 5321, 4.5.3.1.3, less the angle brackets).
    pub const OCTETS_MAX: usize = 254;

    /// Parses an address, without trimming spaces or decoding. A failure results in 400 `invalid_email`.
    pub fn parse(text: &str) -> Result<Self, EmailError> {
        let (at, classes) = syntax::check(text)?;
        Ok(Self { address: text.to_owned(), at, classes })
    }

    /// Returns the address as it was given.
    pub fn as_str(&self) -> &str {
        &self.address
    }

    /// Returns the part before the `@`.
    pub fn local_part(&self) -> &str {
        &self.address[..self.at]
    }

    /// Returns the part after the `@`.
    pub fn domain(&self) -> &str {
        &self.address[self.at + 1..]
    }

    /// Returns the address in lower case, otherwise as it was given. Vendors receive this text.
    pub fn to_lower_case(&self) -> Cow<'_, str> {
        self.lower(&self.address)
    }

    /// Returns the canonical form of all addresses that reach the same mailbox. It serves as a directory's
    /// key and is never shown.
    pub fn canonical(&self) -> String {
        canonical::canonical(self)
    }

    /// Returns the form that identifies a person who opted out. Addresses with one canonical form share it,
    /// and so do others that may reach the same person. It is never shown.
    pub fn opt_out_form(&self) -> String {
        opt_out::opt_out_form(self)
    }

    fn is_ascii(&self) -> bool {
        self.classes & NON_ASCII == 0
    }

    /// Converts a part of the address to lower case.
    fn lower<'a>(&self, part: &'a str) -> Cow<'a, str> {
        if self.classes & UPPER_CASE == 0 { part.into() } else { part.to_ascii_lowercase().into() }
    }

    fn is_quoted(&self) -> bool {
        self.address.starts_with('"')
    }

    /// Returns the position of the first `+` in a form of the local part.
    fn tag(&self, local: &str) -> Option<usize> {
        if self.classes & PLUS == 0 {
            return None;
        }
        local.bytes().position(|byte| byte == b'+')
    }
}

redacted_debug!(Email);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn debug_output_hides_the_email() {
        assert_eq!(format!("{:?}", Email::parse("ada@gmail.com").unwrap()), "Email(…)");
    }

    proptest! {
        #[test]
        fn parser_never_panics_on_address_like_text(text in r#"[a@.\\"\[\]IPv6:0-9é+-]{0,40}(@gmail\.com)?"#) {
            if let Ok(email) = Email::parse(&text) {
                prop_assert_eq!(format!("{}@{}", email.local_part(), email.domain()), text);
                let canonical = Email::parse(&email.canonical()).unwrap();
                prop_assert_eq!(canonical.opt_out_form(), email.opt_out_form());
                let _ = EmailPolicy::default().check(&email);
            }
        }
    }
}
