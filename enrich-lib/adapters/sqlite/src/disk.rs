//! The people directory on disk. Each lookup runs an SQL query.

use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use enrich_lib::model::ProfileUrl;
use rusqlite::{Connection, OptionalExtension, params};

use crate::column::parsed;
use crate::database;
use crate::error::SqliteError;
use enrich_store::EmailHash;
use enrich_store::sync::{Mutex, MutexGuard};

/// A pool of connections, one per core. A lookup uses one that is free.
pub(crate) struct Readers {
    pool: Vec<Mutex<Reader>>,
    /// Set if a reader may not see the newest opt-outs, because its transaction could not be ended.
    is_stale: AtomicBool,
}

/// A connection with a read transaction that stays open between lookups. A lookup that opens its own transaction takes
/// five times as long.
struct Reader(Connection);

impl Readers {
    pub(crate) fn open(path: &Path) -> Result<Self, SqliteError> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let reader = || Ok(Mutex::new(Reader(database::open(path)?)));
        let pool = (0..cores).map(|_| reader()).collect::<Result<_, SqliteError>>()?;
        Ok(Self { pool, is_stale: AtomicBool::new(false) })
    }

    pub(crate) fn refresh(&self) -> Result<(), SqliteError> {
        // Even without a change: while a read transaction is open, SQLite cannot truncate the write-ahead log.
        let ended = self.pool.iter().map(|reader| reader.lock().end_transaction());
        let refreshed = ended.fold(Ok(()), Result::and);
        self.is_stale.store(refreshed.is_err(), Ordering::Release);
        refreshed
    }

    /// Fails if lookups fail, because the last refresh failed and they could find a person who opted out.
    pub(crate) fn check(&self) -> Result<(), SqliteError> {
        if self.is_stale.load(Ordering::Acquire) { Err(SqliteError::OptOuts) } else { Ok(()) }
    }

    pub(crate) fn find(
        &self,
        hash: &EmailHash,
        confidence_min: f64,
    ) -> Result<Option<ProfileUrl>, SqliteError> {
        self.free()?.find(hash, confidence_min)
    }

    pub(crate) fn is_suppressed(&self, hash: &EmailHash) -> Result<bool, SqliteError> {
        self.free()?.is_suppressed(hash)
    }

    fn free(&self) -> Result<MutexGuard<'_, Reader>, SqliteError> {
        self.check()?;
        Ok(self.pool.iter().find_map(Mutex::try_lock).unwrap_or_else(|| self.pool[0].lock()))
    }
}

impl Reader {
    fn find(&mut self, hash: &EmailHash, confidence_min: f64) -> Result<Option<ProfileUrl>, SqliteError> {
        self.begin_transaction()?;
        let mut select =
            self.0.prepare_cached("SELECT profile FROM person WHERE email_hash = ? AND confidence >= ?")?;
        let row = select.query_row(params![hash, confidence_min], |row| {
            parsed(row, 0, |name: String| ProfileUrl::from_name(&name))
        });
        Ok(row.optional()?)
    }

    fn is_suppressed(&mut self, hash: &EmailHash) -> Result<bool, SqliteError> {
        self.begin_transaction()?;
        let mut select =
            self.0.prepare_cached("SELECT 1 FROM opt_out WHERE email_hash = ? AND NOT is_withdrawn")?;
        Ok(select.exists([hash])?)
    }

    // Asks SQLite, which ends a transaction itself when a read fails.
    fn begin_transaction(&mut self) -> Result<(), SqliteError> {
        if self.0.is_autocommit() {
            self.0.execute_batch("BEGIN")?;
        }
        Ok(())
    }

    fn end_transaction(&mut self) -> Result<(), SqliteError> {
        if !self.0.is_autocommit() {
            self.0.execute_batch("COMMIT")?;
        }
        Ok(())
    }
}
