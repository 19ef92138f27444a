//! Keyed hashes of emails, stored in place of the emails themselves.

use std::fmt;

use enrich_lib::email::Email;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The keyed hash of an email: HMAC-SHA-256, truncated to 16 bytes. Without the key, it cannot be reversed,
/// not even by hashing every known address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EmailHash([u8; 16]);

impl EmailHash {
    /// Creates a hash from the bytes that [`EmailHash::as_bytes`] returned.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the 16 bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for EmailHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmailHash(…)")
    }
}

/// Hashes emails under a key. Cheap to clone.
#[derive(Clone)]
pub struct EmailHasher(Hmac<Sha256>);

impl EmailHasher {
    /// Creates a hasher. `key` must be 32 cryptographically secure random bytes. For in-memory use, generate
    /// a new key at each start.
    pub fn new(key: [u8; 32]) -> Self {
        Self(Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"))
    }

    /// Returns the hash of the canonical form, which is the same for all addresses of one mailbox.
    pub fn hash(&self, email: &Email) -> EmailHash {
        self.digest(&email.canonical())
    }

    /// Returns the hash of the form of an opt-out, which is the same for all addresses that may reach one
    /// person.
    pub fn opt_out_hash(&self, email: &Email) -> EmailHash {
        self.digest(&email.opt_out_form())
    }

    fn digest(&self, text: &str) -> EmailHash {
        let mut mac = self.0.clone();
        mac.update(text.as_bytes());
        let mut hash = [0; 16];
        hash.copy_from_slice(&mac.finalize().into_bytes()[..16]);
        EmailHash(hash)
    }
}

impl fmt::Debug for EmailHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmailHasher(…)")
    }
}
