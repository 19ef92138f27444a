//! How the people directory knows an email: SipHash-2-4 of its canonical form, with 128 bits, under the key in
//! `people.key`. It is a keyed hash for short texts: who has the directory and not the key learns nothing of an email.
//! Two of 10¹² people share a hash with a chance of 10⁻¹⁵.

use std::fmt;

use enrich_lib::email::Email;
use siphasher::sip128::SipHasher24;

use crate::dir::{DataDir, write_private};
use crate::error::StoreError;

/// The keyed hash of a canonical email.
pub(crate) type EmailHash = [u8; 16];

#[derive(Clone)]
pub(crate) struct EmailHasher(SipHasher24);

impl EmailHasher {
    /// With the key of the directory, which is `new_key` if there is no directory yet. A directory without its key is
    /// damaged, and gets no new one.
    pub(crate) fn open(dir: &DataDir, new_key: [u8; 16]) -> Result<Self, StoreError> {
        let path = dir.people_key();
        if !path.exists() && !dir.people().exists() {
            write_private(&path, &new_key).map_err(StoreError::file(&path))?;
        }
        let key = std::fs::read(&path).ok().and_then(|key| key.try_into().ok());
        key.map(|key| Self(SipHasher24::new_with_key(&key))).ok_or(StoreError::PeopleKey(path))
    }

    pub(crate) fn hash(&self, email: &Email) -> EmailHash {
        self.0.hash(email.canonical().as_bytes()).as_bytes()
    }
}

impl fmt::Debug for EmailHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmailHasher(…)")
    }
}
