//! The syntax of RFC 5321, 4.1.2 (`Mailbox`), to which JSON Schema's `format: email` refers as well. It is
//! extended by the non-ASCII letters of RFC 6531, 3.3, which are well-formed here and refused as unsupported.

use std::net::Ipv6Addr;

use thiserror::Error;

use super::classes::{ATEXT, Class, DOT, HYPHEN, LET_DIG, class, classes_of};

/// The reason why a text is not an email address. Messages do not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EmailError {
    /// The `email` field is missing or not a string.
    #[error("the email is missing or not a string")]
    Missing,
    /// The address is longer than 254 octets.
    #[error("the email is longer than 254 octets")]
    TooLong,
    /// The local part is not followed by an `@`.
    #[error("the email has no local part followed by an @")]
    NoAt,
    /// The part before the `@` is malformed or longer than 64 octets.
    #[error("the part before the @ is malformed or longer than 64 octets")]
    LocalPart,
    /// The part after the `@` is neither a domain name nor an address literal.
    #[error("the part after the @ is not a domain name")]
    Domain,
}

const LOCAL_OCTETS_MAX: usize = 64; // RFC 5321, 4.5.3.1.1
const DOMAIN_OCTETS_MAX: usize = 253; // RFC 1035, 2.3.4, as text
const LABEL_OCTETS_MAX: usize = 63; // RFC 1035, 2.3.4

/// Checks an address. Returns the position of its `@` and the classes of its bytes.
pub(super) fn check(text: &str) -> Result<(usize, Class), EmailError> {
    if text.len() > super::Email::OCTETS_MAX {
        return Err(EmailError::TooLong);
    }
    let (at, in_local) = if text.starts_with('"') {
        let at = quoted_end(text).ok_or(EmailError::NoAt)?;
        (at, classes_of(&text.as_bytes()[..at]))
    } else {
        dot_string(text.as_bytes())?
    };
    if at > LOCAL_OCTETS_MAX {
        return Err(EmailError::LocalPart);
    }
    let domain = &text[at + 1..];
    let in_domain = match domain.strip_prefix('[') {
        Some(literal) => {
            let is_literal = literal.strip_suffix(']').is_some_and(is_address_literal);
            is_literal.then(|| classes_of(domain.as_bytes()))
        }
        None => classes_of_domain(domain.as_bytes()),
    };
    Ok((at, in_local | in_domain.ok_or(EmailError::Domain)?))
}

/// Parses `Quoted-string = DQUOTE *QcontentSMTP DQUOTE` followed by `@`, and returns the position of the `@`.
fn quoted_end(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    while let Some((i, char)) = chars.next() {
        match char {
            '"' => return text[i + 1..].starts_with('@').then_some(i + 1),
            '\\' => drop(chars.next().filter(|(_, c)| (' '..='~').contains(c))?),
            ' '..='~' | '\u{80}'.. => {}
            _ => return None,
        }
    }
    None
}

/// Parses `Dot-string = Atom *("." Atom)` followed by `@`. Returns the position of the `@` and the classes of
/// the bytes before it.
fn dot_string(text: &[u8]) -> Result<(usize, Class), EmailError> {
    let (mut seen, mut is_in_atom) = (0, false);
    for (at, byte) in text.iter().enumerate() {
        let class = class(*byte);
        let ends_atom = class == DOT && is_in_atom;
        if class & ATEXT == 0 && !ends_atom {
            return match (byte, is_in_atom) {
                (b'@', true) => Ok((at, seen)),
                _ if text[at..].contains(&b'@') => Err(EmailError::LocalPart),
                _ => Err(EmailError::NoAt),
            };
        }
        is_in_atom = !ends_atom;
        seen |= class;
    }
    Err(EmailError::NoAt)
}

/// Parses `Domain = sub-domain *("." sub-domain)`, where `sub-domain = Let-dig [Ldh-str]`. Returns the
/// classes of its bytes.
fn classes_of_domain(domain: &[u8]) -> Option<Class> {
    let (mut seen, mut last, mut label_octets) = (0, DOT, 0);
    for byte in domain {
        let class = class(*byte);
        let is_valid = match class {
            DOT => last & LET_DIG != 0,
            _ => class & LET_DIG != 0 || class & HYPHEN != 0 && last != DOT,
        };
        label_octets = if class == DOT { 0 } else { label_octets + 1 };
        if !is_valid || label_octets > LABEL_OCTETS_MAX {
            return None;
        }
        last = class;
        seen |= class;
    }
    (domain.len() <= DOMAIN_OCTETS_MAX && last & LET_DIG != 0).then_some(seen)
}

/// Checks for `IPv4-address-literal` or `IPv6-address-literal`, the only literals that are registered for RFC
/// 5321.
fn is_address_literal(literal: &str) -> bool {
    match literal.split_at_checked(5) {
        Some((tag, address)) if tag.eq_ignore_ascii_case("IPv6:") => address.parse::<Ipv6Addr>().is_ok(),
        // Does not use std's parser, because RFC 5321's `Snum` allows leading zeros.
        _ => literal.split('.').count() == 4 && literal.split('.').all(is_snum),
    }
}

fn is_snum(text: &str) -> bool {
    (1..=3).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit()) && text.parse::<u8>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use EmailError::*;

    /// The addresses of the JSON Schema test suite (draft 2020-12, `optional/format/email.json`) with their
    /// expected results.
    #[test]
    fn agrees_with_the_json_schema_test_suite() {
        for valid in [
            "joe.bloggs@example.com",
            "te~st@example.com",
            "~test@example.com",
            "test~@example.com",
            "\"joe bloggs\"@example.com",
            "\"joe..bloggs\"@example.com",
            "\"joe@bloggs\"@example.com",
            "joe.bloggs@[127.0.0.1]",
            "joe.bloggs@[IPv6:::1]",
            "te.s.t@example.com",
            "riedgar+guidelines@example.com",
        ] {
            assert!(check(valid).is_ok(), "{valid}");
        }
        for invalid in [
            "2962",
            ".test@example.com",
            "test.@example.com",
            "te..st@example.com",
            "joe.bloggs@invalid=domain.com",
            "joe.bloggs@[127.0.0.300]",
            "user1@oceania.org, user2@oceania.org",
            "\"Winston Smith\" <winston.smith@recdep.minitrue>",
        ] {
            assert!(check(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn accepts_valid_addresses() {
        for valid in [
            "a@b",
            "A1!#$%&'*+-/=?^_`{|}~@b.c",
            "\"\"@b.c",
            "\"\\\"\\\\\"@b.c",
            "a@1.2.3.4",
            "a@xn--bcher-kva.example",
            "a@[001.2.3.255]",
            "a@[ipv6:2001:db8::1]",
            "a@[IPv6:::ffff:1.2.3.4]",
            "zoë@b.c",
            "a@bücher.example",
            "\"zoë\"@b.c",
        ] {
            assert!(check(valid).is_ok(), "{valid}");
        }
    }

    #[test]
    fn reports_the_violated_rule() {
        for (text, error) in [
            ("", NoAt),
            ("ada", NoAt),
            ("ada marlowe", NoAt),
            ("\"ada@b.c", NoAt),
            ("\"ada\"x@b.c", NoAt),
            ("\"a\\\u{7f}\"@b.c", NoAt),
            ("\"a\tb\"@b.c", NoAt),
            ("@b.c", LocalPart),
            (" ada@b.c", LocalPart),
            ("ada @b.c", LocalPart),
            ("a(b)@b.c", LocalPart),
            ("a\0@b.c", LocalPart),
            ("ada@", Domain),
            ("ada@b.c ", Domain),
            ("ada@b.c\n", Domain),
            ("ada@b.c.", Domain),
            ("ada@.b.c", Domain),
            ("ada@b..c", Domain),
            ("ada@-b.c", Domain),
            ("ada@b-.c", Domain),
            ("ada@b_c.d", Domain),
            ("ada@b@c.d", Domain),
            ("ada@[1.2.3]", Domain),
            ("ada@[1.2.3.256]", Domain),
            ("ada@[1.2.3.4", Domain),
            ("ada@[IPv6:1.2.3.4]", Domain),
            ("ada@[x:1]", Domain),
            ("ada@[]", Domain),
        ] {
            assert_eq!(check(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn enforces_exact_length_limits() {
        let address = |local: usize, label: usize| format!("{}@{}.com", "a".repeat(local), "b".repeat(label));
        assert!(check(&address(64, 10)).is_ok());
        assert_eq!(check(&address(65, 10)), Err(LocalPart));
        assert!(check(&address(1, 63)).is_ok());
        assert_eq!(check(&address(1, 64)), Err(Domain));

        let labels = format!("{0}.{0}.{0}", "b".repeat(62)); // 188 octets
        let whole = |local: usize| format!("{}@{labels}.c", "a".repeat(local));
        assert_eq!(check(&whole(63)).map(|_| whole(63).len()), Ok(254));
        assert_eq!(check(&whole(64)), Err(TooLong));
        assert_eq!(check(&format!("{}@b.c", "é".repeat(33))), Err(LocalPart), "octets, not letters");
    }
}
