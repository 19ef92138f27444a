//! The accounts of a data directory as a database for [`Accounts`]. Its statements run on the caller's thread.

use std::time::Duration;

use async_trait::async_trait;
use enrich_store::StoreError;
use enrich_store::accounts::Accounts;
use enrich_store::database::{Access, Database, Transaction};
use enrich_store::records::missing_trigger;
use enrich_store::value::{Row, Value};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, ErrorCode};
use tokio::time::{Instant, sleep};

use super::database::{self, Schema};
use super::dir::DataDir;
use crate::error::{SqliteError, is_sync_failure};

/// The triggers that keep the ledger tables and the audit log append-only.
const TRIGGERS: [&str; 6] = [
    "credit_grant_no_update",
    "credit_grant_no_delete",
    "credit_spend_no_update",
    "credit_spend_no_delete",
    "audit_event_no_update",
    "audit_event_no_delete",
];

/// Opens the accounts of `dir` and creates them if they do not exist, for a command. Their operations block
/// the thread and complete at once.
pub fn accounts(dir: &DataDir) -> Result<Accounts, SqliteError> {
    let mut engine = Engine::open(dir, Wait::Thread)?;
    database::wait_for_writers(&mut engine.db)?;
    Ok(Accounts::new(engine))
}

/// Opens the accounts of `dir` to read them. Does not change the files, unless they are of an older version: they
/// may be a backup on a medium that cannot be written.
pub fn accounts_to_read(dir: &DataDir) -> Result<Accounts, SqliteError> {
    match database::open_current(&dir.accounts(), Schema::Accounts)? {
        Some(db) => Ok(Accounts::new(Engine { db, dir: dir.clone(), wait: Wait::Thread })),
        None => accounts(dir),
    }
}

/// Opens the accounts of `dir` for a server of pages. A change waits up to 10 s for other writers, without
/// blocking the thread.
///
/// Operations require a runtime of Tokio with a timer.
pub fn accounts_for_pages(dir: &DataDir) -> Result<Accounts, SqliteError> {
    let engine = Engine::open(dir, Wait::Task)?;
    engine.db.busy_timeout(Duration::ZERO)?;
    Ok(Accounts::new(engine))
}

/// How long a change of a page waits for other writers. Less than the time of a request.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The pause between two attempts to begin. Shorter than the pauses of a server's writer.
const PAUSE: Duration = Duration::from_millis(1);

/// The unit that waits for other writers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Thread,
    Task,
}

/// A connection to `accounts.db`.
pub(crate) struct Engine {
    db: Connection,
    dir: DataDir,
    wait: Wait,
}

impl Engine {
    pub(crate) fn open(dir: &DataDir, wait: Wait) -> Result<Self, SqliteError> {
        let db = database::create(&dir.accounts(), Schema::Accounts)?;
        Ok(Self { db, dir: dir.clone(), wait })
    }

    /// Executes `BEGIN`, which alone waits for other writers.
    async fn execute(&mut self, begin: &str) -> Result<(), SqliteError> {
        let started = Instant::now();
        loop {
            match self.db.execute_batch(begin) {
                Err(error)
                    if matches!(self.wait, Wait::Task)
                        && error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && started.elapsed() < WAIT_MAX =>
                {
                    sleep(PAUSE).await;
                }
                begun => return Ok(begun?),
            }
        }
    }

    /// Returns the triggers that are missing, and the errors that SQLite's integrity check finds in the file.
    fn faults(&self) -> Result<Vec<String>, SqliteError> {
        let mut faults = Vec::new();
        let mut select =
            self.db.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = ?")?;
        for trigger in TRIGGERS {
            if !select.exists([trigger])? {
                faults.push(missing_trigger(trigger));
            }
        }
        let mut check = self.db.prepare("PRAGMA integrity_check")?;
        let lines = check.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        let damage = lines.into_iter().filter(|line| line != "ok");
        faults.extend(damage.map(|line| format!("the file is damaged: {line}")));
        Ok(faults)
    }
}

#[async_trait]
impl Database for Engine {
    async fn begin(&mut self, access: Access) -> Result<Box<dyn Transaction + '_>, StoreError> {
        let begin = if access.is_write() { "BEGIN IMMEDIATE" } else { "BEGIN" };
        self.execute(begin).await?;
        let transaction = Open(&mut self.db);
        if access.is_write() {
            self.dir.check_not_moved()?; // inside the transaction, because an export waits for it
        }
        Ok(Box::new(transaction))
    }

    /// Returns false if a transaction could not be rolled back.
    fn is_current(&self) -> bool {
        self.db.is_autocommit()
    }

    async fn faults(&mut self) -> Result<Vec<String>, StoreError> {
        Ok(Self::faults(self)?)
    }
}

/// A transaction in progress. Its end is a statement, because a `rusqlite::Transaction` is not `Send`.
struct Open<'a>(&'a mut Connection);

#[async_trait]
impl Transaction for Open<'_> {
    async fn query(&mut self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        Ok(rows(self.0, sql, values)?)
    }

    async fn execute(&mut self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        let executed = prepare(self.0, sql, values).and_then(|mut statement| Ok(statement.raw_execute()?));
        Ok(executed? as u64)
    }

    fn available(&self) -> &'static str {
        "SELECT granted - spent FROM workspace WHERE rowid = $1"
    }

    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        let committed = self.0.execute_batch("COMMIT").map_err(|error| match is_sync_failure(&error) {
            true => SqliteError::SyncFailed(error.to_string()),
            false => error.into(),
        });
        Ok(committed?)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // If it fails, these accounts are not current.
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

/// Prepares a statement with its parameters. SQLite numbers `$2` by where it first occurs, so they are bound
/// by name.
fn prepare<'d>(
    db: &'d Connection,
    sql: &str,
    values: &[Value<'_>],
) -> Result<CachedStatement<'d>, SqliteError> {
    let mut statement = db.prepare_cached(sql)?;
    for (number, value) in (1..).zip(values) {
        let Some(index) = statement.parameter_index(&format!("${number}"))? else { continue };
        match value {
            Value::Null => statement.raw_bind_parameter(index, rusqlite::types::Null)?,
            Value::Int(number) => statement.raw_bind_parameter(index, number)?,
            Value::Text(text) => statement.raw_bind_parameter(index, text)?,
            Value::OwnedText(text) => statement.raw_bind_parameter(index, text)?,
            Value::Bytes(bytes) => statement.raw_bind_parameter(index, bytes)?,
            Value::OwnedBytes(bytes) => statement.raw_bind_parameter(index, bytes)?,
        }
    }
    Ok(statement)
}

fn rows(db: &Connection, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, SqliteError> {
    let mut statement = prepare(db, sql, values)?;
    let columns = statement.column_count();
    let (mut found, mut rows) = (Vec::new(), statement.raw_query());
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|column| value(row.get_ref(column)?));
        found.push(Row::new(values.collect::<Result<_, SqliteError>>()?));
    }
    Ok(found)
}

fn value(value: ValueRef<'_>) -> Result<Value<'static>, SqliteError> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Text(_) => Value::OwnedText(value.as_str().map_err(rusqlite::Error::from)?.to_owned()),
        ValueRef::Blob(bytes) => Value::OwnedBytes(bytes.to_owned()),
        ValueRef::Real(_) => return Err(StoreError::Column("found a fraction".to_owned()).into()),
    })
}
