//! Keyed hashes of emails, and the opt-outs that are stored under them.
//!
//! The hash function is SipHash-2-4 with 128 bits, under the operator's `people.key`. SipHash is a keyed
//! hash for short inputs: without the key, a hash reveals nothing about its email. The probability that any
//! two of 10¹² people share a hash is about 10⁻¹⁵.
//!
//! The first half of a person's hash is that of the form that identifies an opt-out, and the second half is
//! that of the canonical form. The two are one form for most people. An opt-out therefore applies to a range
//! of hashes, and a record can be compared with the opt-outs although its email is not stored. The
//! probability that one of 10⁶ opt-outs hides another person is 10⁻¹³.

use enrich_lib::email::Email;
use enrich_lib::model::Timestamp;
use enrich_lib::receipt::ReceiptKey;
use sha2::{Digest, Sha256};
use siphasher::sip128::SipHasher24;

/// The keyed hash of an email.
pub type EmailHash = [u8; 16];

/// The length of the half that all addresses of an opt-out share.
const OPT_OUT_BYTES: usize = 8;

/// Returns the smallest and the largest hash with the opt-out of `hash`.
pub fn opt_out_range(hash: &EmailHash) -> [EmailHash; 2] {
    let (mut range, half) = ([EmailHash::default(), [u8::MAX; 16]], ..OPT_OUT_BYTES);
    range.iter_mut().for_each(|bound| bound[half].copy_from_slice(&hash[half]));
    range
}

/// Identifies a key without revealing it.
pub type KeyFingerprint = [u8; 16];

/// Returns a key as text: 32 hexadecimal digits.
pub fn people_key_text(key: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*key))
}

/// Parses a key. Returns `None` unless the text is 32 hexadecimal digits, with or without space around them.
pub fn parse_people_key(text: &str) -> Option<[u8; 16]> {
    let digits =
        Some(text.trim()).filter(|text| text.len() == 32 && text.bytes().all(|c| c.is_ascii_hexdigit()));
    Some(u128::from_str_radix(digits?, 16).ok()?.to_be_bytes())
}

/// Hashes emails under the key of a people directory.
#[derive(Clone, derive_more::Debug)]
#[debug("EmailHasher(…)")]
pub struct EmailHasher {
    hasher: SipHasher24,
    fingerprint: KeyFingerprint,
    receipts: ReceiptKey,
}

impl EmailHasher {
    /// Creates a hasher. `key` must be 16 cryptographically secure random bytes.
    pub fn new(key: [u8; 16]) -> Self {
        let digest = Sha256::new_with_prefix(b"enrich people.key\0").chain_update(key).finalize();
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&digest[..16]);
        Self { hasher: SipHasher24::new_with_key(&key), fingerprint, receipts: ReceiptKey::new(key) }
    }

    /// Returns the hash of a person, which is the same for all addresses of one mailbox.
    pub fn hash(&self, email: &Email) -> EmailHash {
        let (form, canonical) = (email.opt_out_form(), email.canonical());
        let mut hash = self.digest(&form);
        if form != canonical {
            hash[OPT_OUT_BYTES..].copy_from_slice(&self.digest(&canonical)[OPT_OUT_BYTES..]);
        }
        hash
    }

    /// Returns the hash of an opt-out, which is the same for all addresses that may reach one person.
    pub fn opt_out_hash(&self, email: &Email) -> EmailHash {
        self.digest(&email.opt_out_form())
    }

    /// Returns the hash of an address, which is the same in upper and lower case.
    pub fn address_hash(&self, email: &Email) -> EmailHash {
        self.digest(&email.to_lower_case())
    }

    /// Returns the key of receipts.
    pub fn receipts(&self) -> &ReceiptKey {
        &self.receipts
    }

    fn digest(&self, text: &str) -> EmailHash {
        self.hasher.hash(text.as_bytes()).as_bytes()
    }

    /// Returns the fingerprint of the key. Hashes under keys with different fingerprints cannot be compared.
    pub fn fingerprint(&self) -> &KeyFingerprint {
        &self.fingerprint
    }
}

/// The last change of a person's opt-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptOut {
    /// The person: [`EmailHasher::opt_out_hash`].
    pub email_hash: EmailHash,
    /// Whether the person may be found again.
    pub is_withdrawn: bool,
    /// When the person opted out or withdrew the opt-out. If two stores differ, the later change applies, and
    /// of two changes at the same time the opt-out.
    pub at: Timestamp,
}

/// How many people an import may remove that replaces all people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemovalLimit {
    /// This number of people.
    People(u64),
    /// This percentage of the people before the import.
    Percent(u8),
}

impl RemovalLimit {
    /// Returns whether `removed` of `people` may be removed.
    pub fn allows(self, removed: u64, people: u64) -> bool {
        match self {
            Self::People(max) => removed <= max,
            Self::Percent(max) => u128::from(removed) * 100 <= u128::from(people) * u128::from(max),
        }
    }
}

/// A fifth of the people.
impl Default for RemovalLimit {
    fn default() -> Self {
        Self::Percent(20)
    }
}

/// The result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Rows that are new or differ from the existing ones.
    pub changed: u64,
    /// Rows that already existed, and rows of people who opted out.
    pub unchanged: u64,
    /// People who were removed because the import replaces all people and does not contain them.
    pub removed: u64,
    /// The removal that did not take place, because it exceeds the [`RemovalLimit`].
    pub refused: Option<RefusedRemoval>,
}

/// People who are not in an import that replaces all people, and were kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRemoval {
    /// Their number.
    pub people: u64,
    /// The number of people before the import.
    pub of: u64,
}

/// Statistics of the people and opt-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeopleStats {
    /// Number of people with a profile.
    pub people: u64,
    /// Number of people, included in `people`, whose match is below the required confidence.
    pub untrusted: u64,
    /// Number of people who opted out.
    pub opt_outs: u64,
}
