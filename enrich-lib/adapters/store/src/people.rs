//! Keyed hashes of emails, and the opt-outs that are stored under them.
//!
//! An email is hashed as SipHash-2-4 of its canonical form, with 128 bits, under the key in the file `people.key`. SipHash is a
//! keyed hash for short inputs: without the key, a hash reveals nothing about its email. The probability that any two of 10¹²
//! people share a hash is about 10⁻¹⁵.

use std::fmt;

use enrich_lib::email::Email;
use enrich_lib::model::Timestamp;
use sha2::{Digest, Sha256};
use siphasher::sip128::SipHasher24;

/// The keyed hash of a canonical email.
pub type EmailHash = [u8; 16];

/// Identifies a key without revealing it.
pub type KeyFingerprint = [u8; 16];

/// Hashes emails under the key of a people directory.
#[derive(Clone)]
pub struct EmailHasher {
    hasher: SipHasher24,
    fingerprint: KeyFingerprint,
}

impl EmailHasher {
    /// Creates a hasher. `key` must be 16 cryptographically secure random bytes.
    pub fn new(key: [u8; 16]) -> Self {
        let digest = Sha256::new_with_prefix(b"enrich people.key\0").chain_update(key).finalize();
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&digest[..16]);
        Self { hasher: SipHasher24::new_with_key(&key), fingerprint }
    }

    /// Returns the hash of the canonical form, which is the same for all addresses of one mailbox.
    pub fn hash(&self, email: &Email) -> EmailHash {
        self.hasher.hash(email.canonical().as_bytes()).as_bytes()
    }

    /// Returns the fingerprint of the key. Hashes under keys with different fingerprints cannot be compared.
    pub fn fingerprint(&self) -> &KeyFingerprint {
        &self.fingerprint
    }
}

impl fmt::Debug for EmailHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmailHasher(…)")
    }
}

/// The last change of a person's opt-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptOut {
    /// The person.
    pub email_hash: EmailHash,
    /// Whether the person may be found again.
    pub is_withdrawn: bool,
    /// When the person opted out or withdrew the opt-out. If two stores differ, the later change applies.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_identifies_the_key() {
        let fingerprint = |key| *EmailHasher::new([key; 16]).fingerprint();
        assert_eq!(fingerprint(7), fingerprint(7));
        assert_ne!(fingerprint(7), fingerprint(8));
        assert_ne!(fingerprint(7), [7; 16]);
    }

    #[test]
    fn hash_depends_on_the_key_and_the_mailbox() {
        let hash = |key, email| EmailHasher::new([key; 16]).hash(&Email::parse(email).unwrap());
        assert_eq!(hash(7, "ada.marlowe@gmail.com"), hash(7, "AdaMarlowe+x@googlemail.com"));
        assert_ne!(hash(7, "ada@gmail.com"), hash(8, "ada@gmail.com"));
        assert_ne!(hash(7, "ada@gmail.com"), hash(7, "bea@gmail.com"));
    }
}
