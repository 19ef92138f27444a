//! The key of the email hashes of the people directory, in `people.key`.

use std::io::ErrorKind;

use enrich_store::{EmailHasher, parse_people_key, people_key_text};
use rusqlite::Connection;

use crate::error::SqliteError;
use crate::files::dir::{DataDir, write_private};
use crate::files::verify::fingerprint;

/// Reads the key of the directory. If neither key nor directory exists, writes `new_key` first.
///
/// Errors: [`SqliteError::PeopleKey`] if the key is missing or damaged, [`SqliteError::File`] if it cannot be
/// read. An existing directory never receives a new key.
pub(super) fn open(dir: &DataDir, new_key: [u8; 16]) -> Result<EmailHasher, SqliteError> {
    let path = dir.people_key();
    if !path.exists() && !dir.people().exists() {
        write_private(&path, format!("{}\n", people_key_text(&new_key)).as_bytes())
            .map_err(SqliteError::file(&path))?;
    }
    let text = match std::fs::read_to_string(&path) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
            return Err(SqliteError::file(path)(error));
        }
        text => text.ok(),
    };
    let key = text.and_then(|text| parse_people_key(&text));
    key.map(EmailHasher::new).ok_or(SqliteError::PeopleKey(path))
}

/// Stores the fingerprint of the key if there is none, and checks that the stored one is the same. Writes nothing
/// otherwise, so that the directory can be opened while the disk is full.
///
/// Errors: [`SqliteError::ForeignPeopleKey`].
pub(super) fn check(dir: &DataDir, db: &Connection, hasher: &EmailHasher) -> Result<(), SqliteError> {
    if fingerprint(db)?.is_none() {
        db.execute("INSERT OR IGNORE INTO people_key VALUES (1, ?)", [hasher.fingerprint()])?;
    }
    match fingerprint(db)?.as_ref() == Some(hasher.fingerprint()) {
        true => Ok(()),
        false => Err(SqliteError::ForeignPeopleKey(dir.people_key())),
    }
}
