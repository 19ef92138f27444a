//! The supported addresses. Specification 7 leaves open what is "not supported for enrichment": an address is
//! supported if it may belong to one person. Addresses at work domains and unknown domains are supported,
//! because lists of consumer providers are never complete.

use std::collections::BTreeSet;
use std::ops::BitOr;
use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;

use super::Email;

/// The reason why an address is not supported. Messages do not contain the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Non-ASCII letters (RFC 6531).
    #[error("the email is internationalised")]
    Internationalised,
    /// A quoted local part.
    #[error("the email's local part is quoted")]
    QuotedLocalPart,
    /// An IP address instead of a domain.
    #[error("the email's domain is an address literal")]
    AddressLiteral,
    /// A single label, a numeric top-level domain, or a special-use domain (RFC 2606, RFC 6761).
    #[error("the email's domain is not a public one")]
    NotPublic,
    /// A provider of disposable addresses.
    #[error("the email's provider is disposable")]
    Disposable,
    /// A forwarding service that hides the recipient's address.
    #[error("the email is a private relay's")]
    Relay,
    /// A local part that names a role, such as `info` or `noreply`.
    #[error("the email names a role and not a person")]
    Role,
    /// A provider that is not on the operator's allow-list.
    #[error("the email's provider is not on the allow-list")]
    NotAllowed,
}

/// The operator's settings for supported addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmailPolicy {
    /// Refuses addresses at disposable providers.
    pub refuse_disposable: bool,
    /// Additional disposable domains in lower case, each including its subdomains.
    pub disposable_domains: BTreeSet<String>,
    /// Refuses addresses of private relays.
    pub refuse_relays: bool,
    /// Refuses addresses that name a role.
    pub refuse_roles: bool,
    /// If set, only addresses at exactly these domains (in lower case) are supported.
    pub providers_allowed: Option<BTreeSet<String>>,
}

impl Default for EmailPolicy {
    fn default() -> Self {
        Self {
            refuse_disposable: true,
            disposable_domains: BTreeSet::new(),
            refuse_relays: true,
            refuse_roles: true,
            providers_allowed: None,
        }
    }
}

impl EmailPolicy {
    /// Checks that `email` is supported. A failure results in 400 `unsupported_email`.
    pub fn check(&self, email: &Email) -> Result<(), Unsupported> {
        if !email.is_ascii() {
            return Err(Unsupported::Internationalised);
        }
        if email.is_quoted() {
            return Err(Unsupported::QuotedLocalPart);
        }
        if email.domain().starts_with('[') {
            return Err(Unsupported::AddressLiteral);
        }
        let domain = email.lower(email.domain());
        let is_listed = kinds(&domain);
        if !has_public_form(&domain) || is_listed(SPECIAL_USE) {
            return Err(Unsupported::NotPublic);
        }
        if self.refuse_relays && is_listed(RELAY) {
            return Err(Unsupported::Relay);
        }
        if self.refuse_disposable && (is_listed(DISPOSABLE) || self.lists_as_disposable(&domain)) {
            return Err(Unsupported::Disposable);
        }
        if self.refuse_roles && is_role(email) {
            return Err(Unsupported::Role);
        }
        match &self.providers_allowed {
            Some(providers) if !providers.contains(&*domain) => Err(Unsupported::NotAllowed),
            _ => Ok(()),
        }
    }

    fn lists_as_disposable(&self, domain: &str) -> bool {
        let domains = &self.disposable_domains;
        !domains.is_empty() && suffixes(domain).any(|domain| domains.contains(domain))
    }
}

/// Returns `true` if the domain has more than one label and the last one is not a number.
fn has_public_form(domain: &str) -> bool {
    let top = domain.bytes().rposition(|byte| byte == b'.').map(|dot| &domain.as_bytes()[dot + 1..]);
    top.is_some_and(|top| !top.iter().all(u8::is_ascii_digit))
}

fn is_role(email: &Email) -> bool {
    let local = email.local_part();
    ROLES.contains(&*email.lower(&local[..email.tag(local).unwrap_or(local.len())]))
}

/// Returns an iterator over `domain` and its parent domains.
fn suffixes(domain: &str) -> impl Iterator<Item = &str> {
    // Searches byte by byte, because labels are too short for a faster algorithm to pay off.
    let parent = |domain: &&'_ str| domain.bytes().position(|byte| byte == b'.').map(|dot| dot + 1);
    std::iter::successors(Some(domain), move |domain| domain.get(parent(domain)?..))
}

/// A kind of domain: a bit in [`LISTED`].
type Kind = u8;
const SPECIAL_USE: Kind = 1;
const RELAY: Kind = 2;
const DISPOSABLE: Kind = 4;

/// Returns a function that checks whether `domain` or one of its parent domains is of a kind.
fn kinds(domain: &str) -> impl Fn(Kind) -> bool {
    let kinds = suffixes(domain).filter_map(|domain| LISTED.get(domain)).fold(0, BitOr::bitor);
    move |kind| kinds & kind != 0
}

/// The lists of domains in one map, so that each suffix is looked up once.
static LISTED: LazyLock<FxHashMap<&str, Kind>> = LazyLock::new(|| {
    let mut listed = FxHashMap::default();
    for (kind, list) in DOMAINS {
        names(list).for_each(|domain| *listed.entry(domain).or_default() |= kind);
    }
    listed
});

static ROLES: LazyLock<FxHashSet<&str>> = LazyLock::new(|| names(ROLE_ACCOUNTS).collect());

const DOMAINS: [(Kind, &str); 3] = [
    (SPECIAL_USE, include_str!("data/special_use_domains.txt")),
    (RELAY, include_str!("data/relay_domains.txt")),
    (DISPOSABLE, include_str!("data/disposable_domains.txt")),
];
const ROLE_ACCOUNTS: &str = include_str!("data/role_accounts.txt");

/// Returns the names of a list with one name per line. Lines that start with `#` name the list's source.
fn names(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().filter(|line| !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Unsupported::*;

    fn check(address: &str) -> Result<(), Unsupported> {
        EmailPolicy::default().check(&Email::parse(address).unwrap())
    }

    #[test]
    fn distinguishes_unsupported_kinds() {
        for (address, why) in [
            ("zoë@gmail.com", Internationalised),
            ("zoe@bücher.ch", Internationalised),
            ("\"ada\"@gmail.com", QuotedLocalPart),
            ("ada@[127.0.0.1]", AddressLiteral),
            ("ada@[IPv6:::1]", AddressLiteral),
            ("ada@localhost", NotPublic),
            ("ada@mailhost", NotPublic),
            ("ada@1.2.3.4", NotPublic),
            ("ada@example.com", NotPublic),
            ("ada@mail.EXAMPLE.org", NotPublic),
            ("ada@x.test", NotPublic),
            ("ada@hidden.onion", NotPublic),
            ("ada@printer.local", NotPublic),
            ("ada@home.arpa", NotPublic),
            ("ada@mailinator.com", Disposable),
            ("ada@Sub.Mailinator.com", Disposable),
            ("x7f3k@privaterelay.appleid.com", Relay),
            ("ada@duck.com", Relay),
            ("info@gmail.com", Role),
            ("No-Reply@company.com", Role),
            ("admin+ada@company.com", Role),
        ] {
            assert_eq!(check(address), Err(why), "{address}");
        }
    }

    #[test]
    fn allow_list_excludes_other_providers() {
        let policy = EmailPolicy {
            providers_allowed: Some(["gmail.com".to_owned()].into()),
            ..EmailPolicy::default()
        };
        let check = |address: &str| policy.check(&Email::parse(address).unwrap());
        assert_eq!(check("ada@GMail.com"), Ok(()));
        assert_eq!(check("ada@outlook.com"), Err(NotAllowed));
        assert_eq!(check("ada@mail.gmail.com"), Err(NotAllowed));
    }

    #[test]
    fn each_policy_switch_affects_one_kind() {
        let refuses_all = EmailPolicy::default();
        let kinds = [
            ("ada@mailinator.com", EmailPolicy { refuse_disposable: false, ..refuses_all.clone() }),
            ("ada@duck.com", EmailPolicy { refuse_relays: false, ..refuses_all.clone() }),
            ("info@gmail.com", EmailPolicy { refuse_roles: false, ..refuses_all }),
        ];
        for (admitted, policy) in &kinds {
            for (address, _) in &kinds {
                let checked = policy.check(&Email::parse(address).unwrap());
                assert_eq!(checked.is_ok(), address == admitted, "{address} where {admitted} is admitted");
            }
            for address in ["zoë@gmail.com", "\"ada\"@gmail.com", "ada@[127.0.0.1]", "ada@localhost"] {
                assert!(policy.check(&Email::parse(address).unwrap()).is_err(), "{address}");
            }
        }
    }

    #[test]
    fn configured_disposable_domains_include_subdomains() {
        let policy = EmailPolicy {
            disposable_domains: ["throwaway.name".to_owned()].into(),
            ..EmailPolicy::default()
        };
        let check = |address: &str| policy.check(&Email::parse(address).unwrap());
        for address in ["ada@Throwaway.name", "ada@sub.throwaway.name", "ada@mailinator.com"] {
            assert_eq!(check(address), Err(Disposable), "{address}");
        }
        for address in ["ada@nothrowaway.name", "ada@marlowe.name"] {
            assert_eq!(check(address), Ok(()), "{address}");
        }
        let admits = EmailPolicy { refuse_disposable: false, ..policy.clone() };
        assert_eq!(admits.check(&Email::parse("ada@throwaway.name").unwrap()), Ok(()));
    }

    #[test]
    fn domain_lists_are_lower_case() {
        for list in DOMAINS.map(|(_, list)| list).into_iter().chain([ROLE_ACCOUNTS]) {
            assert!(names(list).count() > 0);
            for name in names(list) {
                assert!(!name.is_empty() && name.is_ascii() && name.trim() == name, "{name:?}");
                assert_eq!(name.to_ascii_lowercase(), name);
            }
        }
    }
}
