//! How the people directory knows an email: HMAC-SHA-256 of its canonical form, cut to 16 bytes, under the key in
//! `people.key`. At 128 bits, two of 10¹² people share a hash with a chance of 10⁻¹⁵.

use std::fmt;

use enrich_lib::email::Email;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::dir::{DataDir, write_private};
use crate::error::StoreError;

/// The keyed hash of a canonical email.
pub(crate) type EmailHash = [u8; 16];

#[derive(Clone)]
pub(crate) struct EmailHasher(Hmac<Sha256>);

impl EmailHasher {
    /// With the key of the directory, which is `new_key` if there is no directory yet. A directory without its key is
    /// damaged, and gets no new one.
    pub(crate) fn open(dir: &DataDir, new_key: [u8; 32]) -> Result<Self, StoreError> {
        let path = dir.people_key();
        if !path.exists() && !dir.people().exists() {
            write_private(&path, &new_key).map_err(StoreError::file(&path))?;
        }
        let key = std::fs::read(&path).ok().filter(|key| key.len() == new_key.len());
        let hasher = key.and_then(|key| Hmac::new_from_slice(&key).ok());
        hasher.map(Self).ok_or(StoreError::PeopleKey(path))
    }

    pub(crate) fn hash(&self, email: &Email) -> EmailHash {
        let mut mac = self.0.clone();
        mac.update(email.canonical().as_bytes());
        let mut hash = EmailHash::default();
        let len = hash.len();
        hash.copy_from_slice(&mac.finalize().into_bytes()[..len]);
        hash
    }
}

impl fmt::Debug for EmailHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmailHasher(…)")
    }
}
