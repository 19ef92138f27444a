//! Opening a SQLite file, and its numbered migrations.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use enrich_store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, ffi};

use super::dir::write_private;
use super::wal;
use crate::error::SqliteError;

/// How long a statement waits for another process's write transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The kinds of database files. Migration `n` upgrades a file from version `n-1` to `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    Accounts,
    People,
}

impl Schema {
    fn migrations(self) -> &'static [&'static str] {
        match self {
            Self::Accounts => &[include_str!("../../migrations/accounts/0001_accounts.sql")],
            Self::People => &[include_str!("../../migrations/people/0001_people.sql")],
        }
    }

    /// A table that every version has.
    fn table(self) -> &'static str {
        match self {
            Self::Accounts => "workspace",
            Self::People => "person",
        }
    }
}

/// Opens the file, creates it if it is missing, and migrates it to the newest version.
///
/// Errors: [`SqliteError::Damaged`] if it was lost, because its write-ahead log has frames.
pub(crate) fn create(path: &Path, schema: Schema) -> Result<Connection, SqliteError> {
    // In this order: a file of another process that creates it has pages before its log has.
    if wal::has_frames(path) {
        check_has_pages(path)?;
    }
    // An empty file is an empty database. SQLite itself would create it readable by all users.
    match write_private(path, b"") {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(SqliteError::file(path)(error));
        }
        _ => {}
    }
    let mut db = open(path)?;
    migrate(&mut db, path, schema)?;
    Ok(db)
}

/// Opens another connection to a file that [`create`] has opened before.
pub(crate) fn open(path: &Path) -> Result<Connection, SqliteError> {
    let db = open_unchanged(path, BUSY_TIMEOUT)?;
    use_write_ahead_log(&db)?;
    // A commit is durable when it returns. The reply to a spend depends on nothing else.
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "trusted_schema", false)?;
    // Without it, SQLite plans a statement again for each bound value, which takes longer than running it.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(db)
}

/// Opens a file as it is, if it has the newest version. Fails if it has no tables.
pub(crate) fn open_current(path: &Path, schema: Schema) -> Result<Option<Connection>, SqliteError> {
    check_has_pages(path)?;
    let db = open_unchanged(path, BUSY_TIMEOUT)?;
    check_tables(&db, path, schema)?;
    let is_current = version(&db)? == schema.migrations().len();
    Ok(is_current.then_some(db))
}

/// Checks that a file exists and is not empty, before it is opened: SQLite deletes the write-ahead log of an empty
/// one, from which its content may be recovered.
pub(crate) fn check_has_pages(path: &Path) -> Result<(), SqliteError> {
    match fs::metadata(path) {
        Ok(meta) if meta.len() > 0 => Ok(()),
        Ok(_) => Err(damaged(path, "it has no tables")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(damaged(path, "it is missing")),
        Err(error) => Err(SqliteError::file(path)(error)),
    }
}

/// Returns whether a database was not just created.
pub(crate) fn has_tables(db: &Connection) -> Result<bool, SqliteError> {
    Ok(db.query_row("SELECT count(*) > 0 FROM sqlite_schema", [], |row| row.get(0))?)
}

/// Checks that a database has the tables of a kind, in a version that this program supports.
pub(crate) fn check_tables(db: &Connection, path: &Path, schema: Schema) -> Result<(), SqliteError> {
    if !has_tables(db)? {
        return Err(damaged(path, "it has no tables"));
    }
    if !db.table_exists(None, schema.table())? {
        return Err(damaged(path, &format!("it is another database, without the table {}", schema.table())));
    }
    check_version(version(db)?, path, schema)
}

fn check_version(version: usize, path: &Path, schema: Schema) -> Result<(), SqliteError> {
    if version > schema.migrations().len() {
        return Err(StoreError::NewerSchema(path.display().to_string()).into());
    }
    Ok(())
}

fn damaged(path: &Path, error: &str) -> SqliteError {
    SqliteError::Damaged { path: path.to_owned(), error: error.to_owned() }
}

/// Switches a new file to the write-ahead log. SQLite does not wait for the lock of another process that
/// creates the same file.
fn use_write_ahead_log(db: &Connection) -> Result<(), SqliteError> {
    let mut attempts = 0;
    loop {
        match db.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && retry(attempts) => {
                attempts += 1;
            }
            done => return Ok(done?),
        }
    }
}

/// Opens a file as it is: without migrating it or changing its journal mode.
pub(crate) fn open_unchanged(path: &Path, busy_timeout: Duration) -> Result<Connection, SqliteError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Otherwise, SQLite would read a relative path that begins with `file:` as a URI.
    let opened = Connection::open_with_flags(Path::new(".").join(path), flags);
    let db = opened.map_err(|error| match cannot_open(path, &error) {
        Some(reason) => SqliteError::file(path)(reason),
        None => error.into(),
    })?;
    db.busy_timeout(busy_timeout)?;
    Ok(db)
}

/// Returns the operating system's reason why SQLite could not open a file. SQLite does not report it.
fn cannot_open(path: &Path, error: &rusqlite::Error) -> Option<io::Error> {
    if error.sqlite_error_code() != Some(ErrorCode::CannotOpen) {
        return None;
    }
    // If it can be opened now, it stays open: closing it would drop the process's locks on it.
    File::options().read(true).write(true).open(path).map(std::mem::forget).err()
}

/// Begins a transaction that writes. It waits for those of other processes.
pub(crate) fn begin(db: &mut Connection) -> Result<Transaction<'_>, SqliteError> {
    Ok(db.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

/// Creates the error of a file that another process uses.
pub(crate) fn busy(why: &str) -> SqliteError {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), Some(why.to_owned())).into()
}

/// Makes statements of a command wait up to a minute for write transactions of other processes.
///
/// A busy server commits back to back. SQLite's own timeout sleeps up to 100 ms between its attempts, and can
/// miss the short pauses between these commits for seconds.
pub(crate) fn wait_for_writers(db: &mut Connection) -> Result<(), SqliteError> {
    Ok(db.busy_handler(Some(retry))?)
}

/// Sleeps before the next attempt, or returns `false` after about a minute. `attempts` is the number of
/// earlier attempts.
pub(crate) fn retry(attempts: i32) -> bool {
    pause(if attempts < SHORT_PAUSES { SHORT_PAUSE } else { LONG_PAUSE });
    attempts < ATTEMPTS_MAX
}

/// Blocks the thread of a command, or of a server that starts.
#[expect(
    clippy::disallowed_methods,
    reason = "the thread has nothing else to do; the server's writer does not call this"
)]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}

/// Pause between attempts at first, and their number.
const SHORT_PAUSE: Duration = Duration::from_millis(1);
const SHORT_PAUSES: i32 = 1_000;
/// Pause between later attempts. Shorter than the pauses of a server's writer.
const LONG_PAUSE: Duration = Duration::from_millis(2);
/// With the pauses before, about a minute.
const ATTEMPTS_MAX: i32 = 30_000;

/// Moves all commits from the write-ahead log into the database and empties the log. Returns `false` if the log
/// is not empty, because another connection is reading the database.
pub(crate) fn empty_log(db: &Connection) -> Result<bool, SqliteError> {
    let is_busy: bool = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(!is_busy)
}

/// Moves commits from the write-ahead log into the database, up to the state that the oldest reader uses. Waits for
/// no reader.
pub(crate) fn apply_log(db: &Connection) -> Result<(), SqliteError> {
    Ok(db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
}

fn migrate(db: &mut Connection, path: &Path, schema: Schema) -> Result<(), SqliteError> {
    let migrations = schema.migrations();
    if has_tables(db)? {
        check_tables(db, path, schema)?;
    }
    // A current file is not written to, so that it can be opened and read while the disk is full.
    if version(db)? == migrations.len() {
        return Ok(());
    }
    let tx = begin(db)?;
    let version = version(&tx)?; // another process may have migrated it first
    check_version(version, path, schema)?;
    for migration in &migrations[version..] {
        tx.execute_batch(migration)?;
    }
    tx.pragma_update(None, "user_version", migrations.len())?;
    tx.commit()?;
    Ok(())
}

fn version(db: &Connection) -> Result<usize, SqliteError> {
    Ok(db.pragma_query_value(None, "user_version", |row| row.get(0))?)
}
