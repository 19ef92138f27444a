//! The key of all email hashes, of which the database has the fingerprint.

use enrich_store::EmailHasher;

use crate::error::PostgresError;

/// Stores the fingerprint `$1` if there is none, and returns whether the stored one is the same.
pub(crate) const CHECK_KEY: &str = "/* enrich: people key */
    INSERT INTO people_key AS k (fingerprint) VALUES ($1)
    ON CONFLICT (is_only) DO UPDATE SET fingerprint = k.fingerprint RETURNING fingerprint = $1";

/// Returns whether the stored fingerprint is `$1`, or no row if there is none.
pub(super) const HAS_KEY: &str = "SELECT fingerprint = $1 FROM people_key";

/// Returns the argument of [`CHECK_KEY`].
pub(crate) fn fingerprint(hasher: &EmailHasher) -> &[u8] {
    &hasher.fingerprint()[..]
}

/// Converts the result of a comparison with the key.
pub(crate) fn checked(is_same: bool) -> Result<(), PostgresError> {
    if is_same { Ok(()) } else { Err(PostgresError::PeopleKey) }
}
