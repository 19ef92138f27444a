//! The people directory on disk. Each lookup runs an SQL query.

use std::num::NonZero;
use std::path::Path;
use std::thread;

use enrich_lib::model::ProfileUrl;
use rusqlite::{Connection, OptionalExtension, params};

use crate::column::parsed;
use crate::database;
use crate::error::SqliteError;
use enrich_store::EmailHash;
use enrich_store::sync::{Mutex, MutexGuard};

/// A pool of connections, one per core. A lookup uses one that is free.
pub(crate) struct Readers(Vec<Mutex<Reader>>);

/// A connection with a read transaction that stays open between lookups. A lookup that opens its own transaction takes
/// five times as long.
struct Reader {
    db: Connection,
    is_reading: bool,
}

impl Readers {
    pub(crate) fn open(path: &Path) -> Result<Self, SqliteError> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let reader = || Ok(Mutex::new(Reader { db: database::open(path)?, is_reading: false }));
        Ok(Self((0..cores).map(|_| reader()).collect::<Result<_, SqliteError>>()?))
    }

    pub(crate) fn refresh(&self) -> Result<(), SqliteError> {
        // Even without a change: while a read transaction is open, SQLite cannot truncate the write-ahead log.
        self.0.iter().try_for_each(|reader| reader.lock().end_transaction())
    }

    pub(crate) fn find(
        &self,
        hash: &EmailHash,
        confidence_min: f64,
    ) -> Result<Option<ProfileUrl>, SqliteError> {
        self.free().find(hash, confidence_min)
    }

    pub(crate) fn is_suppressed(&self, hash: &EmailHash) -> Result<bool, SqliteError> {
        self.free().is_suppressed(hash)
    }

    fn free(&self) -> MutexGuard<'_, Reader> {
        self.0.iter().find_map(Mutex::try_lock).unwrap_or_else(|| self.0[0].lock())
    }
}

impl Reader {
    fn find(&mut self, hash: &EmailHash, confidence_min: f64) -> Result<Option<ProfileUrl>, SqliteError> {
        self.begin_transaction()?;
        let mut select =
            self.db.prepare_cached("SELECT profile FROM person WHERE email_hash = ? AND confidence >= ?")?;
        let row = select.query_row(params![hash, confidence_min], |row| {
            parsed(row, 0, |name: String| ProfileUrl::from_name(&name))
        });
        Ok(row.optional()?)
    }

    fn is_suppressed(&mut self, hash: &EmailHash) -> Result<bool, SqliteError> {
        self.begin_transaction()?;
        let mut select =
            self.db.prepare_cached("SELECT 1 FROM opt_out WHERE email_hash = ? AND NOT is_withdrawn")?;
        Ok(select.exists([hash])?)
    }

    fn begin_transaction(&mut self) -> Result<(), SqliteError> {
        if !self.is_reading {
            self.db.execute_batch("BEGIN")?;
            self.is_reading = true;
        }
        Ok(())
    }

    fn end_transaction(&mut self) -> Result<(), SqliteError> {
        if self.is_reading {
            self.db.execute_batch("COMMIT")?;
            self.is_reading = false;
        }
        Ok(())
    }
}
