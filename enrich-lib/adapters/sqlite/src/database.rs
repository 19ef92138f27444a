//! One SQLite file: how it is opened, and its numbered migrations.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::dir::write_private;
use crate::error::StoreError;

/// How long a statement waits for another process's write to end.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The kinds of files, each with its migrations: the n-th brings a file from version n-1 to n.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Schema {
    Accounts,
    People,
}

impl Schema {
    fn migrations(self) -> &'static [&'static str] {
        match self {
            Self::Accounts => &[include_str!("../migrations/accounts/0001_accounts.sql")],
            Self::People => &[include_str!("../migrations/people/0001_people.sql")],
        }
    }
}

/// Opens the file, creates it if it is missing, and brings it to the newest version.
pub(crate) fn create(path: &Path, schema: Schema) -> Result<Connection, StoreError> {
    // An empty file is an empty database; SQLite itself would make it readable by all.
    match write_private(path, b"") {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(StoreError::file(path)(error));
        }
        _ => {}
    }
    let mut db = open(path)?;
    migrate(&mut db, path, schema)?;
    Ok(db)
}

/// Opens one more connection to a file that [`create`] has opened before.
pub(crate) fn open(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    // A commit is on the disk before it returns: the reply to a spend waits for nothing else.
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update(None, "trusted_schema", false)?;
    // Without it, a statement is planned anew for each value that is looked up, which takes longer than to run it.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(db)
}

fn migrate(db: &mut Connection, path: &Path, schema: Schema) -> Result<(), StoreError> {
    let migrations = schema.migrations();
    // Nothing is written to a file that is current: it can be opened, and read, on a disk that is full.
    if version(db)? == migrations.len() {
        return Ok(());
    }
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = version(&tx)?; // another process may have been first
    if version > migrations.len() {
        return Err(StoreError::NewerSchema(path.to_owned()));
    }
    for migration in &migrations[version..] {
        tx.execute_batch(migration)?;
    }
    tx.pragma_update(None, "user_version", migrations.len())?;
    tx.commit()?;
    Ok(())
}

fn version(db: &Connection) -> Result<usize, StoreError> {
    Ok(db.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

/// Notices what other connections, of this process or another, commit to the file.
#[derive(Debug)]
pub(crate) struct Watch {
    data_version: i64,
}

impl Watch {
    pub(crate) fn new(db: &Connection) -> Result<Self, StoreError> {
        Ok(Self { data_version: data_version(db)? })
    }

    /// Does `act` if there was a commit since the last time, or if nobody can tell: what can't be verified is not
    /// relied on. An `act` that fails is due again.
    pub(crate) fn on_change(
        &mut self,
        db: &Connection,
        act: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let now = data_version(db);
        if !matches!(now, Ok(now) if now == self.data_version) {
            act()?;
        }
        self.data_version = now?;
        Ok(())
    }
}

fn data_version(db: &Connection) -> Result<i64, StoreError> {
    Ok(db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}
