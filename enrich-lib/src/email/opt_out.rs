//! The form of an address that identifies a person who opted out.
//!
//! It matches more widely than [`canonical`](super::canonical): a superfluous rule hides a person, and a
//! missing rule passes the person on to a vendor. Two addresses with the same canonical form have the same
//! form here.

use std::borrow::Cow;
use std::iter;

use super::Email;

/// Converts an address to lower case, and removes quotes, a `+tag` and all that its provider is known to
/// ignore.
pub(super) fn opt_out_form(email: &Email) -> String {
    let (local, domain) = (email.lower(email.local_part()), email.lower(email.domain()));
    let local = unquoted(local);
    let name = &local[..email.tag(&local).filter(|at| *at > 0).unwrap_or(local.len())];
    let (name, domain) = match domain.split_once('.') {
        // Any name at a person's own subdomain.
        Some((name, "fastmail.com")) => (name, "fastmail.com"),
        // No account has a hyphen in its name: it separates the keyword of a disposable address.
        Some(("yahoo", _)) => {
            (name.split('-').next().filter(|name| !name.is_empty()).unwrap_or(name), &*domain)
        }
        _ => (name, &*domain),
    };
    let (domain, ignored): (_, &[char]) = match domain {
        "gmail.com" | "googlemail.com" => ("gmail.com", &['.']),
        "icloud.com" | "me.com" | "mac.com" => ("icloud.com", &[]),
        "proton.me" | "protonmail.com" | "protonmail.ch" | "pm.me" => ("proton.me", &['.', '-', '_']),
        "ya.ru" | "yandex.by" | "yandex.com" | "yandex.kz" | "yandex.ru" | "yandex.ua" => {
            ("yandex.ru", &['.', '-'])
        }
        _ => (domain, &[]),
    };
    let mut form = String::with_capacity(name.len() + 1 + domain.len());
    name.split(ignored).for_each(|part| form.push_str(part));
    form.push('@');
    form.push_str(domain);
    form
}

/// Removes the quotes of a local part, and the backslashes before its characters. Both forms name the same
/// mailbox (RFC 5321, 4.1.2).
fn unquoted(local: Cow<'_, str>) -> Cow<'_, str> {
    let Some(quoted) = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return local;
    };
    let mut chars = quoted.chars();
    iter::from_fn(|| chars.next().and_then(|char| if char == '\\' { chars.next() } else { Some(char) }))
        .collect()
}
