//! The key of the email hashes of the people directory, in `people.key`.

use enrich_store::EmailHasher;

use crate::dir::{DataDir, write_private};
use crate::error::SqliteError;

/// Reads the key of the directory. If neither key nor directory exists, writes `new_key` first.
///
/// Errors: [`SqliteError::PeopleKey`] if the key is missing or damaged. An existing directory never receives
/// a new key.
pub(super) fn open(dir: &DataDir, new_key: [u8; 16]) -> Result<EmailHasher, SqliteError> {
    let path = dir.people_key();
    if !path.exists() && !dir.people().exists() {
        write_private(&path, &new_key).map_err(SqliteError::file(&path))?;
    }
    let key = std::fs::read(&path).ok().and_then(|key| key.try_into().ok());
    key.map(EmailHasher::new).ok_or(SqliteError::PeopleKey(path))
}
