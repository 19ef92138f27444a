//! Which well-formed addresses are looked up. Specification 7 leaves open what is "not supported for
//! enrichment": an address passes if one person can be behind it. Work and unknown domains pass, as lists of
//! consumer providers always miss real ones.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use thiserror::Error;

use super::{Email, lower};

/// Why an address is not looked up. None of them repeats the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unsupported {
    /// Letters outside ASCII (RFC 6531).
    #[error("the email is internationalised")]
    Internationalised,
    /// A local part in quotes.
    #[error("the email's local part is quoted")]
    QuotedLocalPart,
    /// An IP address in the place of a domain.
    #[error("the email's domain is an address literal")]
    AddressLiteral,
    /// A single label, a numeric top-level domain, or a special-use domain (RFC 2606, RFC 6761).
    #[error("the email's domain is not a public one")]
    NotPublic,
    /// A provider of throw-away addresses.
    #[error("the email's provider is disposable")]
    Disposable,
    /// A service that forwards to an address it hides.
    #[error("the email is a private relay's")]
    Relay,
    /// A local part that names a role, such as `info` or `noreply`.
    #[error("the email names a role and not a person")]
    Role,
    /// A provider that is not on the operator's list.
    #[error("the email's provider is not on the allow-list")]
    NotAllowed,
}

/// The operator's choice of supported addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmailPolicy {
    /// Whether addresses at disposable providers are refused.
    pub refuse_disposable: bool,
    /// Disposable providers beside those of our list: domains in lower case, each with all that lies under it.
    pub disposable_domains: BTreeSet<String>,
    /// Whether addresses of private relays are refused.
    pub refuse_relays: bool,
    /// Whether addresses that name a role are refused.
    pub refuse_roles: bool,
    /// If set, only addresses at exactly these domains (in lower case) are looked up.
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
    /// Whether `email` is looked up. Errors: what a lookup answers with 400 `unsupported_email`.
    pub fn check(&self, email: &Email) -> Result<(), Unsupported> {
        if !email.as_str().is_ascii() {
            return Err(Unsupported::Internationalised);
        }
        if email.local_part().starts_with('"') {
            return Err(Unsupported::QuotedLocalPart);
        }
        if email.domain().starts_with('[') {
            return Err(Unsupported::AddressLiteral);
        }
        let domain = lower(email.domain());
        if !is_public(&domain) {
            return Err(Unsupported::NotPublic);
        }
        if self.refuse_relays && RELAY.has_suffix_of(&domain) {
            return Err(Unsupported::Relay);
        }
        if self.refuse_disposable && self.is_disposable(&domain) {
            return Err(Unsupported::Disposable);
        }
        if self.refuse_roles && is_role(email.local_part()) {
            return Err(Unsupported::Role);
        }
        match &self.providers_allowed {
            Some(providers) if !providers.contains(&*domain) => Err(Unsupported::NotAllowed),
            _ => Ok(()),
        }
    }

    fn is_disposable(&self, domain: &str) -> bool {
        DISPOSABLE.has_suffix_of(domain)
            || suffixes(domain).any(|domain| self.disposable_domains.contains(domain))
    }
}

fn is_public(domain: &str) -> bool {
    let Some((_, top)) = domain.rsplit_once('.') else { return false };
    !top.bytes().all(|c| c.is_ascii_digit()) && !SPECIAL_USE.has_suffix_of(domain)
}

/// `domain`, and each domain that it lies under.
fn suffixes(domain: &str) -> impl Iterator<Item = &str> {
    // Byte by byte: labels are too short for a search to pay.
    let parent = |domain: &&'_ str| domain.bytes().position(|byte| byte == b'.').map(|dot| dot + 1);
    std::iter::successors(Some(domain), move |domain| domain.get(parent(domain)?..))
}

fn is_role(local: &str) -> bool {
    let name = local.split_once('+').map_or(local, |(name, _)| name);
    ROLE.names.contains(&*lower(name))
}

static SPECIAL_USE: LazyLock<List> =
    LazyLock::new(|| List::read(include_str!("data/special_use_domains.txt")));
static RELAY: LazyLock<List> = LazyLock::new(|| List::read(include_str!("data/relay_domains.txt")));
static DISPOSABLE: LazyLock<List> = LazyLock::new(|| List::read(include_str!("data/disposable_domains.txt")));
static ROLE: LazyLock<List> = LazyLock::new(|| List::read(include_str!("data/role_accounts.txt")));

/// A list of names, one a line; lines that start with `#` tell where it comes from.
struct List {
    names: HashSet<&'static str, BuildHasherDefault<Fnv>>,
}

impl List {
    fn read(text: &'static str) -> Self {
        Self { names: text.lines().filter(|line| !line.starts_with('#')).collect() }
    }

    /// Whether `domain`, or a domain that it lies under, is listed.
    fn has_suffix_of(&self, domain: &str) -> bool {
        suffixes(domain).any(|domain| self.names.contains(domain))
    }
}

/// FNV-1a, the shortest hash for short names. Nobody can make them collide: they are ours.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Unsupported::*;

    fn check(address: &str) -> Result<(), Unsupported> {
        EmailPolicy::default().check(&Email::parse(address).unwrap())
    }

    #[test]
    fn people_at_consumer_work_and_unknown_domains_are_supported() {
        for address in [
            "ada.marlowe@gmail.com",
            "ada@icloud.com",
            "ada@fastmail.com",
            "ada@marlowe-consulting.co.uk",
            "ada@never-heard-of.name",
            "ada@xn--bcher-kva.ch",
            "infoada@gmail.com",
        ] {
            assert_eq!(check(address), Ok(()), "{address}");
        }
    }

    #[test]
    fn each_kind_of_unsupported_address_is_told_apart() {
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
    fn an_allow_list_admits_its_providers_alone() {
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
    fn each_switch_admits_its_own_kind_and_no_other() {
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
    fn the_operators_disposable_domains_are_refused_beside_ours_with_all_under_them() {
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
    fn the_lists_are_in_the_form_in_which_they_are_asked() {
        for list in [&SPECIAL_USE, &RELAY, &DISPOSABLE, &ROLE] {
            assert!(!list.names.is_empty());
            for name in &list.names {
                assert!(!name.is_empty() && name.is_ascii() && name.trim() == *name, "{name:?}");
                assert_eq!(name.to_ascii_lowercase(), *name);
            }
        }
    }

    #[test]
    fn no_list_names_a_provider_at_which_people_have_mailboxes() {
        for provider in
            ["gmail.com", "outlook.com", "yahoo.com", "icloud.com", "proton.me", "gmx.de", "fastmail.com"]
        {
            assert_eq!(check(&format!("ada@{provider}")), Ok(()), "{provider}");
        }
    }
}
