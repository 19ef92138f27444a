//! Verification of the database files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use enrich_store::{EmailHasher, KeyFingerprint, StoreError, parse_people_key};
use rusqlite::{Connection, OptionalExtension};

use super::database::{self, Schema};
use super::dir::{DataDir, LastUse, ServeLock};
use super::wal;
use crate::error::SqliteError;

/// The errors in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileCheck {
    /// The file.
    pub path: PathBuf,
    /// The first errors. Empty if the file is intact.
    pub errors: Vec<String>,
}

/// Maximum number of errors of one file. A damaged file can have one for each page.
const ERRORS_MAX: usize = 10;

/// How long a check waits for a process that recovers the write-ahead log.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

impl DataDir {
    /// Checks the kind, version, structure and foreign keys of each database file, that there are accounts, and that the
    /// people have their key. Reads all files, and can run while another process serves.
    pub fn check_files(&self) -> Result<Vec<FileCheck>, SqliteError> {
        let (path, people) = (self.accounts(), self.people());
        let mut checks = vec![FileCheck { errors: errors_in(&path, Schema::Accounts)?, path }];
        if self.has_people() {
            checks.push(FileCheck { errors: errors_in(&people, Schema::People)?, path: people });
            let is_readable = checks[1].errors.is_empty();
            checks.push(FileCheck { path: self.people_key(), errors: self.key_errors(is_readable)? });
        }
        Ok(checks)
    }

    /// Returns whether there are people, or what is left of them. A file without a fingerprint is new until its key
    /// exists, and another process may be creating it.
    pub fn has_people(&self) -> bool {
        let path = self.people();
        let has_log = wal::has_frames(&path); // first, because a file has pages before its log has
        let is_new = || match database::check_has_pages(&path) {
            Ok(()) => {
                matches!(open_unchanged(&path).and_then(|people| fingerprint(&people, &path)), Ok(None))
            }
            Err(_) => !has_log,
        };
        self.people_key().exists() || !is_new()
    }

    /// Checks that the people are not missing or empty although their log has frames or their key exists, which are
    /// created after them.
    ///
    /// Errors: [`SqliteError::Damaged`].
    pub(crate) fn check_people_not_lost(&self) -> Result<(), SqliteError> {
        let (path, has_log) = (self.people(), wal::has_frames(&self.people()));
        if !has_log && !self.people_key().exists() {
            return Ok(());
        }
        database::check_has_pages(&path).map_err(|error| match error {
            // A first import of an earlier version that was interrupted left the key, too.
            SqliteError::Damaged { path, error } if !has_log => SqliteError::Damaged {
                path,
                error: format!(
                    "{error} (if no people or opt-outs were ever recorded here, move people.key away)"
                ),
            },
            error => error,
        })
    }

    /// Returns the error of the key of the people, which is compared with them if they are readable.
    fn key_errors(&self, is_readable: bool) -> Result<Vec<String>, SqliteError> {
        let error = match self.check_key(is_readable) {
            Ok(()) => return Ok(Vec::new()),
            Err(SqliteError::PeopleKey(path)) if !path.exists() => "is missing",
            Err(SqliteError::PeopleKey(_)) => "must be 32 hexadecimal digits",
            Err(SqliteError::ForeignPeopleKey(_)) => "is not the key of the people",
            Err(error) => return Err(error),
        };
        Ok(vec![error.to_owned()])
    }

    /// Checks the key of the people, and compares it with them if they are readable.
    ///
    /// Errors: [`SqliteError::PeopleKey`]; [`SqliteError::ForeignPeopleKey`].
    pub(crate) fn check_key(&self, is_readable: bool) -> Result<(), SqliteError> {
        let hasher = self.read_key()?;
        let path = self.people();
        let stored = if is_readable { fingerprint(&open_unchanged(&path)?, &path)? } else { None };
        match stored.is_none_or(|stored| stored == *hasher.fingerprint()) {
            true => Ok(()),
            false => Err(SqliteError::ForeignPeopleKey(self.people_key())),
        }
    }

    /// Reads the key of the people.
    ///
    /// Errors: [`SqliteError::PeopleKey`] if it is missing or damaged; [`SqliteError::File`] if it cannot be read.
    pub(crate) fn read_key(&self) -> Result<EmailHasher, SqliteError> {
        let path = self.people_key();
        let text = match fs::read_to_string(&path) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
                return Err(SqliteError::file(path)(error));
            }
            text => text.ok(),
        };
        let key = text.and_then(|text| parse_people_key(&text));
        key.map(EmailHasher::new).ok_or(SqliteError::PeopleKey(path))
    }

    /// Returns whether the last process that served the accounts was killed, or the machine lost power.
    ///
    /// An orderly end is recorded, and empties the write-ahead log. After another end, the files are checked before they
    /// are served, because they can also be a copy of a directory in use, whose files do not belong together. A copy
    /// may lack the record. A log may be missing because a command has opened and closed the files since.
    pub fn ended_uncleanly(&self) -> bool {
        self.last_use() != LastUse::Closed || wal::has_content(&self.accounts())
    }

    /// Checks the database files after an unclean end, and logs the start and the end of the check. People
    /// without a write-ahead log have not changed, and are not checked, unless a check of them has not ended well.
    ///
    /// The end of a check closes the file, and SQLite then moves the log into the database. If a sync of the
    /// log failed before, some operating systems never write its pages, although they can be read. A power
    /// loss would then remove all later commits of the same log, too.
    ///
    /// Errors: [`SqliteError::Damaged`].
    pub(crate) fn check_after_unclean_end(&self, lock: &ServeLock) -> Result<(), SqliteError> {
        if self.ended_uncleanly() {
            let has_failed = self.last_use() == LastUse::Unchecked;
            let checks_people = wal::has_content(&self.people()) || has_failed && self.has_people();
            // The check removes the logs, so that the next start would not repeat one that is interrupted.
            lock.record(if checks_people { LastUse::Unchecked } else { LastUse::Served })?;
            tracing::info!("the accounts were not closed in order; checking the database files");
            check(&self.accounts())?;
            if checks_people {
                check(&self.people())?;
            }
            tracing::info!("the database files have no errors");
        }
        Ok(())
    }
}

/// Checks the structure of a database file, and that it exists.
///
/// Errors: [`SqliteError::Damaged`].
pub(crate) fn check(path: &Path) -> Result<(), SqliteError> {
    database::check_has_pages(path)?;
    match damage(path)?.into_iter().next() {
        Some(error) => Err(SqliteError::Damaged { path: path.to_owned(), error }),
        None => Ok(()),
    }
}

/// Opens a database file as it is.
pub(crate) fn open_unchanged(path: &Path) -> Result<Connection, SqliteError> {
    database::open_unchanged(path, BUSY_TIMEOUT)
}

/// Returns the fingerprint of the key of the people in the file at `path`, unless they are new.
pub(crate) fn fingerprint(people: &Connection, path: &Path) -> Result<Option<KeyFingerprint>, SqliteError> {
    if !database::has_tables(people)? {
        return Ok(None);
    }
    database::check_tables(people, path, Schema::People)?;
    Ok(people.query_row("SELECT fingerprint FROM people_key", [], |row| row.get(0)).optional()?)
}

/// Returns the errors in a database file.
fn errors_in(path: &Path, schema: Schema) -> Result<Vec<String>, SqliteError> {
    if !path.is_file() {
        return Ok(vec!["is missing".to_owned()]);
    }
    let find = || {
        database::check_has_pages(path)?;
        let errors = damage(path)?;
        if !errors.is_empty() {
            return Ok(errors);
        }
        let db = open_unchanged(path)?;
        database::check_tables(&db, path, schema)?;
        broken_references(&db)
    };
    match find() {
        Err(SqliteError::Damaged { error, .. }) => Ok(vec![error]),
        Err(SqliteError::Store(error @ StoreError::NewerSchema(_))) => Ok(vec![error.to_string()]),
        found => found,
    }
}

/// Returns the errors in the structure of a database file. Each page is read once. The order of index entries
/// is not compared with the rows, which would take several times as long.
///
/// Errors: [`SqliteError::Damaged`] if the file is no database.
fn damage(path: &Path) -> Result<Vec<String>, SqliteError> {
    let read = || {
        let db = open_unchanged(path)?;
        let mut select = db.prepare(&format!("PRAGMA quick_check({ERRORS_MAX})"))?;
        let lines = select.query_map([], |row| row.get::<_, String>(0))?;
        Ok(lines.collect::<Result<Vec<_>, _>>()?)
    };
    let lines = read().map_err(|error: SqliteError| error.or_damaged(path))?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// Returns one error for each table whose rows refer to missing rows.
fn broken_references(db: &Connection) -> Result<Vec<String>, SqliteError> {
    let mut select = db.prepare(
        "SELECT \"table\", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2 ORDER BY 1, 2",
    )?;
    let errors = select.query_map([], |row| {
        let (table, parent, rows): (String, String, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(format!("{rows} rows of {table} refer to missing rows of {parent}"))
    })?;
    Ok(errors.collect::<Result<_, _>>()?)
}
