//! How a resolver remembers an email without having it: a keyed hash of its canonical form.

use std::fmt;

use enrich_lib::email::Email;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The keyed hash of a canonical email: HMAC-SHA-256, cut to 16 bytes. Without the key, nobody can tell whose it is, not
/// even by trying the addresses there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EmailHash([u8; 16]);

impl EmailHash {
    /// The hash that [`EmailHash::as_bytes`] gave.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The sixteen bytes.
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
    /// With this key: 32 cryptographically strong random bytes. A key for what is in memory is drawn anew at each start.
    pub fn new(key: [u8; 32]) -> Self {
        Self(Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"))
    }

    /// The hash of the canonical form, the same for all addresses of one mailbox.
    pub fn hash(&self, email: &Email) -> EmailHash {
        let mut mac = self.0.clone();
        mac.update(email.canonical().as_bytes());
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
