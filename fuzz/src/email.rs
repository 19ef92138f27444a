//! Fuzzing of the email parser, compared with the crate `email_address`. Explains each difference, and checks
//! invariants.

use std::net::{Ipv4Addr, Ipv6Addr};

use email_address::EmailAddress;
use enrich_lib::email::{Email, EmailPolicy, Unsupported};

/// Parses `data` as an email address and compares the result with the crate's.
pub fn email(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let ours = Email::parse(text);

    // Non-ASCII characters count as letters (RFC 6531), except after a backslash: RFC 6531 does not change
    // RFC 5321's `quoted-pairSMTP`. The crate compares code points as if they were UTF-8 bytes, so each of
    // their bytes is replaced by a `z`.
    let ascii = in_ascii(text);
    if !text.is_ascii() && ours.is_err() {
        let mut chars = text.chars();
        let is_escaped = std::iter::from_fn(|| chars.find(|c| *c == '\\').map(|_| chars.next()))
            .any(|next| next.is_some_and(|c| !c.is_ascii()));
        assert!(is_escaped || Email::parse(&ascii).is_err(), "{text:?} is refused: {ours:?}");
    } else {
        assert_eq!(Email::parse(&ascii).is_ok(), ours.is_ok(), "{text:?}");
    }
    assert_eq!(Email::parse(&ascii).is_ok(), expected(&ascii), "{ascii:?}: {ours:?}");

    if let Ok(email) = ours {
        check_promises(text, &email);
    }
}

fn in_ascii(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii() { c.to_string() } else { "z".repeat(c.len_utf8()) }).collect()
}

/// Returns whether RFC 5321 allows `text`. The crate validates both parts separately, as it would otherwise
/// accept a display name with an address. Where the crate differs from the RFC, the RFC decides.
fn expected(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    // 4.5.3.1.3 limits the total length; the crate does not.
    text.len() <= Email::OCTETS_MAX && is_local_part(local) && is_domain(domain)
}

fn is_local_part(local: &str) -> bool {
    // `Quoted-string = DQUOTE *QcontentSMTP DQUOTE`: the crate rejects an empty quoted string.
    local == "\"\""
        // `qtextSMTP` includes the space but not the tab: the crate accepts both, following RFC 5322.
        || !local.contains('\t')
            // `quoted-pairSMTP` includes the space, which the crate rejects after a backslash.
            && EmailAddress::is_valid_local_part(&local.replace("\\ ", "\\x"))
}

fn is_domain(domain: &str) -> bool {
    match domain.strip_prefix('[') {
        // The crate accepts any text between brackets, following RFC 5322.
        Some(literal) => literal.strip_suffix(']').is_some_and(is_address_literal),
        // `sub-domain = Let-dig [Ldh-str]`: the crate also accepts the punctuation of local parts.
        None => {
            EmailAddress::is_valid_domain(domain)
                && domain.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'.')
        }
    }
}

/// Returns whether `literal` is an address literal (4.1.3). `Snum` has up to three digits. The parser of std
/// rejects leading zeros, so they are removed first.
fn is_address_literal(literal: &str) -> bool {
    match literal.get(..5) {
        Some(tag) if tag.eq_ignore_ascii_case("IPv6:") => literal[5..].parse::<Ipv6Addr>().is_ok(),
        _ => {
            let snum = |text: &str| match text.trim_start_matches('0') {
                _ if text.is_empty() || text.len() > 3 => "none".to_owned(),
                "" => "0".to_owned(),
                digits => digits.to_owned(),
            };
            literal.split('.').map(snum).collect::<Vec<_>>().join(".").parse::<Ipv4Addr>().is_ok()
        }
    }
}

fn check_promises(text: &str, email: &Email) {
    assert_eq!(email.as_str(), text);
    assert_eq!(format!("{}@{}", email.local_part(), email.domain()), text);
    assert_eq!(format!("{email:?}"), "Email(…)");

    let domain = email.domain().to_ascii_lowercase();
    let policy = |change: &dyn Fn(&mut EmailPolicy)| {
        let mut policy = EmailPolicy::default();
        change(&mut policy);
        policy
    };
    let only = |domain: &str| policy(&|policy| policy.providers_allowed = Some([domain.to_owned()].into()));
    let supported = EmailPolicy::default().check(email);
    assert_eq!(only(&domain).check(email), supported, "an allow-list makes nothing supported");
    let elsewhere = only("elsewhere.invalid").check(email);
    let thrown_away = policy(&|policy| policy.disposable_domains = [domain.clone()].into()).check(email);
    let open = policy(&|policy| {
        (policy.refuse_disposable, policy.refuse_relays, policy.refuse_roles) = (false, false, false);
    });
    let is_switched =
        matches!(supported, Err(Unsupported::Disposable | Unsupported::Relay | Unsupported::Role));
    assert_eq!(open.check(email).is_ok(), supported.is_ok() || is_switched, "a switch admits its own kind");

    let (canonical, opt_out) = (email.canonical(), email.opt_out_form());
    if supported.is_ok() {
        assert!(text.is_ascii());
        assert_eq!(elsewhere, Err(Unsupported::NotAllowed));
        assert_eq!(thrown_away, Err(Unsupported::Disposable));
        let again = Email::parse(&canonical).unwrap_or_else(|e| panic!("{text:?} became {canonical:?}: {e}"));
        assert_eq!((again.canonical(), again.opt_out_form()), (canonical, opt_out), "{text:?}");
    } else {
        assert_eq!(elsewhere, supported);
    }
}
