//! The syntax of RFC 5321, 4.1.2 (`Mailbox`), to which JSON Schema's `format: email` refers as well. It is extended by the
//! non-ASCII letters of RFC 6531, 3.3, which are well-formed here and refused as unsupported.

use std::net::Ipv6Addr;

use thiserror::Error;

/// The reason why a text is not an email address. Messages do not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EmailError {
    /// The `email` field is missing or not a string.
    #[error("the email is missing or no string")]
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
    #[error("the part after the @ is no domain name")]
    Domain,
}

const LOCAL_OCTETS_MAX: usize = 64; // RFC 5321, 4.5.3.1.1
const DOMAIN_OCTETS_MAX: usize = 253; // RFC 1035, 2.3.4, as text
const LABEL_OCTETS_MAX: usize = 63; // RFC 1035, 2.3.4

/// Checks an address and returns the position of its `@`.
pub(super) fn check(text: &str) -> Result<usize, EmailError> {
    if text.len() > super::Email::OCTETS_MAX {
        return Err(EmailError::TooLong);
    }
    let first_at = || text.bytes().position(|byte| byte == b'@');
    let at = if text.starts_with('"') { quoted_end(text) } else { first_at() }.ok_or(EmailError::NoAt)?;
    let (local, domain) = (&text[..at], &text[at + 1..]);
    if local.len() > LOCAL_OCTETS_MAX || !(local.starts_with('"') || is_dot_string(local)) {
        return Err(EmailError::LocalPart);
    }
    let domain_fits = match domain.strip_prefix('[') {
        Some(literal) => literal.strip_suffix(']').is_some_and(is_address_literal),
        None => is_domain(domain),
    };
    if domain_fits { Ok(at) } else { Err(EmailError::Domain) }
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

/// `Dot-string = Atom *("." Atom)`
fn is_dot_string(local: &str) -> bool {
    let mut is_in_atom = false;
    for byte in local.bytes() {
        let ends_atom = byte == b'.' && is_in_atom;
        is_in_atom = is(ATEXT, byte);
        if !(is_in_atom || ends_atom) {
            return false;
        }
    }
    is_in_atom
}

/// `Domain = sub-domain *("." sub-domain)`
fn is_domain(domain: &str) -> bool {
    domain.len() <= DOMAIN_OCTETS_MAX && domain.as_bytes().split(|byte| *byte == b'.').all(is_label)
}

/// `sub-domain = Let-dig [Ldh-str]`
fn is_label(label: &[u8]) -> bool {
    let [first, .., last] = label else { return label.iter().any(|byte| is(LET_DIG, *byte)) };
    label.len() <= LABEL_OCTETS_MAX
        && is(LET_DIG, *first)
        && is(LET_DIG, *last)
        && label.iter().all(|byte| *byte == b'-' || is(LET_DIG, *byte))
}

/// A class of bytes: the bits in [`CLASSES`] of which a byte has at least one.
type Class = u8;
const LET_DIG: Class = 0b01;
const SYMBOL: Class = 0b10;
const ATEXT: Class = 0b11; // letters, digits and symbols

const fn is(class: Class, byte: u8) -> bool {
    CLASSES[byte as usize] & class != 0
}

/// The class of each byte. Non-ASCII bytes count as letters.
const CLASSES: [Class; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let c = byte as u8;
        classes[byte] = if c.is_ascii_alphanumeric() || !c.is_ascii() { LET_DIG } else { 0 };
        byte += 1;
    }
    let (symbols, mut at) = (b"!#$%&'*+-/=?^_`{|}~", 0);
    while at < symbols.len() {
        classes[symbols[at] as usize] = SYMBOL;
        at += 1;
    }
    classes
};

/// Checks for `IPv4-address-literal` or `IPv6-address-literal`, the only literals that are registered for RFC 5321.
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

    /// The addresses of the JSON Schema test suite (draft 2020-12, `optional/format/email.json`) with their expected
    /// results.
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
