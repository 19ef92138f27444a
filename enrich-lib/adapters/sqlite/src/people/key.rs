//! The key of the email hashes of the people directory, in `people.key`.

use enrich_store::{EmailHasher, people_key_text};
use rusqlite::Connection;

use crate::error::SqliteError;
use crate::files::database;
use crate::files::dir::DataDir;
use crate::files::verify::fingerprint;

/// Reads the key of the directory, and compares it with the fingerprint that is stored with the people. Writes
/// nothing if there is one, so that the directory can be opened while the disk is full.
///
/// A directory without a fingerprint is new. It receives `new_key` if it has no key, and then the fingerprint. Other
/// processes wait meanwhile, and a process that is killed leaves a directory that is still new.
///
/// Errors: [`SqliteError::PeopleKey`] if the key is missing or damaged, [`SqliteError::ForeignPeopleKey`],
/// [`SqliteError::File`] if it cannot be read or written. An existing directory never receives a new key.
pub(super) fn open(
    dir: &DataDir,
    db: &mut Connection,
    new_key: [u8; 16],
) -> Result<EmailHasher, SqliteError> {
    let path = dir.people();
    if fingerprint(db, &path)?.is_none() {
        let tx = database::begin(db)?;
        if !dir.people_key().exists() && fingerprint(&tx, &path)?.is_none() {
            dir.replace("people.key", &format!("{}\n", people_key_text(&new_key)))?;
        }
        tx.execute("INSERT OR IGNORE INTO people_key VALUES (1, ?)", [dir.read_key()?.fingerprint()])?;
        tx.commit()?;
    }
    let hasher = dir.read_key()?;
    match fingerprint(db, &path)?.as_ref() == Some(hasher.fingerprint()) {
        true => Ok(hasher),
        false => Err(SqliteError::ForeignPeopleKey(dir.people_key())),
    }
}
