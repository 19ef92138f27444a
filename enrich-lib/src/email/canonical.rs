//! The canonical form of all addresses that reach one mailbox.
//!
//! Applies only rules that a provider documents. A superfluous rule would return another person's profile.

use super::Email;

/// The differences that a provider ignores in a local part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ignores {
    /// Only case.
    Case,
    /// A `+` and the text after it (RFC 5233 subaddressing).
    Tag,
    /// A tag and dots.
    TagAndDots,
}

/// Converts an address to lower case and applies its provider's documented rules.
pub(super) fn canonical(email: &Email) -> String {
    let (local, domain) = (email.local_part(), email.lower(email.domain()));
    let (domain, ignores) = rules(&domain);
    // In quotes, a dot or a tag can be part of an escape sequence, or be followed by the closing quote.
    let ignores = if email.is_quoted() { Ignores::Case } else { ignores };
    let has_dots = ignores != Ignores::TagAndDots;
    // The text before a tag must be a mailbox name itself: not empty, and not `ada.`.
    let is_name = |name: &str| !(name.is_empty() || has_dots && name.ends_with('.'));
    let tag = if ignores == Ignores::Case { None } else { email.tag(local) };
    let tag = tag.filter(|&at| is_name(&local[..at]));
    let name = email.lower(&local[..tag.unwrap_or(local.len())]);

    let mut address = String::with_capacity(name.len() + 1 + domain.len());
    let mut rest = &*name;
    while !has_dots && let Some(dot) = rest.bytes().position(|byte| byte == b'.') {
        address.push_str(&rest[..dot]);
        rest = &rest[dot + 1..];
    }
    address.push_str(rest);
    address.push('@');
    address.push_str(domain);
    address
}

fn rules(domain: &str) -> (&str, Ignores) {
    match domain {
        "gmail.com" | "googlemail.com" => ("gmail.com", Ignores::TagAndDots),
        "outlook.com" | "hotmail.com" | "live.com" | "msn.com" => (domain, Ignores::Tag),
        "icloud.com" | "me.com" | "mac.com" => (domain, Ignores::Tag),
        "fastmail.com" | "proton.me" | "protonmail.com" | "pm.me" => (domain, Ignores::Tag),
        _ => (domain, Ignores::Case),
    }
}
