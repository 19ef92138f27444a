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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::email::Email;

    fn form(address: &str) -> String {
        Email::parse(address).unwrap().opt_out_form()
    }

    #[test]
    fn addresses_of_one_person_share_a_form() {
        for (address, expected) in [
            ("Bea@Company.com", "bea@company.com"),
            ("bea+news@company.com", "bea@company.com"),
            ("bea+a+b@company.com", "bea@company.com"),
            ("+bea@company.com", "+bea@company.com"),
            ("bea.m@company.com", "bea.m@company.com"),
            ("bea-m@company.com", "bea-m@company.com"),
            ("B.e.a+x@GoogleMail.com", "bea@gmail.com"),
            ("bea.m@mac.com", "bea.m@icloud.com"),
            ("bea.m+x@me.com", "bea.m@icloud.com"),
            ("bea-m_x@protonmail.com", "beamx@proton.me"),
            ("bea.mx@pm.me", "beamx@proton.me"),
            ("bea-m@ya.ru", "beam@yandex.ru"),
            ("bea-shop@yahoo.co.uk", "bea@yahoo.co.uk"),
            ("-shop@yahoo.com", "-shop@yahoo.com"),
            ("shop@bea.fastmail.com", "bea@fastmail.com"),
            ("bea+shop@fastmail.com", "bea@fastmail.com"),
            ("bea@hotmail.com", "bea@hotmail.com"),
            ("bea@outlook.com", "bea@outlook.com"),
            ("\"Bea\"@company.com", "bea@company.com"),
            ("\"be.\\a+x\"@gmail.com", "bea@gmail.com"),
            ("\"bea m\"@company.com", "bea m@company.com"),
            ("\"bea\\\\\\\"\"@company.com", "bea\\\"@company.com"),
        ] {
            assert_eq!(form(address), expected, "{address}");
        }
    }

    /// The domains of one mailbox, and the characters that its provider ignores.
    const PROVIDERS: [(&[&str], &str); 6] = [
        (&["gmail.com", "googlemail.com"], "."),
        (&["icloud.com", "me.com", "mac.com"], ""),
        (&["proton.me", "protonmail.com", "protonmail.ch", "pm.me"], ".-_"),
        (&["ya.ru", "yandex.com", "yandex.ru"], ".-"),
        (&["outlook.com"], ""),
        (&["company.com"], ""),
    ];

    /// A spelling of the address of `name`: with a separator after some letters, capitals, a tag, one of the
    /// domains, and quotes.
    fn spelling() -> impl Strategy<Value = (String, usize, String)> {
        let spelling = (any::<[u8; 6]>(), any::<usize>(), "(\\+[a-z.+]{0,5}[a-z])?", any::<bool>());
        let parts = ("[a-z]{1,6}", 0..PROVIDERS.len(), spelling);
        parts.prop_map(|(name, provider, (choices, domain, tag, is_quoted))| {
            let (domains, ignored) = PROVIDERS[provider];
            let mut local = String::new();
            for (letter, choice) in name.chars().zip(choices) {
                let separator =
                    ignored.chars().nth(usize::from(choice / 2 % 4)).filter(|_| !local.is_empty());
                local.extend(separator);
                local.push(if choice % 2 == 0 { letter } else { letter.to_ascii_uppercase() });
            }
            let tag = tag.replace("..", "").replace("+.", "+").replace(".+", "+");
            let quote = if is_quoted { "\"" } else { "" };
            (name, provider, format!("{quote}{local}{tag}{quote}@{}", domains[domain % domains.len()]))
        })
    }

    proptest! {
        #[test]
        fn forms_are_equal_for_spellings_of_one_person_only(
            (name, provider, one) in spelling(), (other_name, other_provider, other) in spelling(),
        ) {
            let is_same = (name, provider) == (other_name, other_provider);
            prop_assert_eq!(form(&one) == form(&other), is_same, "{} {}", one, other);
        }

        #[test]
        fn all_spellings_of_a_person_have_the_form_of_the_name((name, provider, spelling) in spelling()) {
            let plain = format!("{name}@{}", PROVIDERS[provider].0[0]);
            prop_assert_eq!(form(&spelling), form(&plain));
        }

        #[test]
        fn is_coarser_than_the_canonical_form((_, _, spelling) in spelling()) {
            let canonical = Email::parse(&spelling).unwrap().canonical();
            prop_assert_eq!(form(&spelling), form(&canonical));
        }
    }
}
