//! Email hashes of the people directory.
//!
//! An email is hashed as SipHash-2-4 of its canonical form, with 128 bits, under the key in `people.key`. SipHash is a
//! keyed hash for short inputs: without the key, the directory reveals nothing about an email. The probability that any
//! two of 10¹² people share a hash is about 10⁻¹⁵.

use std::fmt;

use enrich_lib::email::Email;
use siphasher::sip128::SipHasher24;

use crate::dir::{DataDir, write_private};
use crate::error::SqliteError;

/// The keyed hash of a canonical email.
pub(crate) type EmailHash = [u8; 16];

#[derive(Clone)]
pub(crate) struct EmailHasher(SipHasher24);

impl EmailHasher {
    /// Reads the key of the directory. If neither key nor directory exists, writes `new_key` first.
    ///
    /// Errors: [`SqliteError::PeopleKey`] if the key is missing or damaged. An existing directory never receives a new
    /// key.
    pub(crate) fn open(dir: &DataDir, new_key: [u8; 16]) -> Result<Self, SqliteError> {
        let path = dir.people_key();
        if !path.exists() && !dir.people().exists() {
            write_private(&path, &new_key).map_err(SqliteError::file(&path))?;
        }
        let key = std::fs::read(&path).ok().and_then(|key| key.try_into().ok());
        key.map(|key| Self(SipHasher24::new_with_key(&key))).ok_or(SqliteError::PeopleKey(path))
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
