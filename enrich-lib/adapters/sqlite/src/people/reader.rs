//! Lookups in the people directory: one SQL statement each, over pages of the operating system's page cache.

use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use enrich_lib::model::ProfileUrl;
use rusqlite::{Connection, OptionalExtension, params};

use crate::column::parsed;
use crate::error::SqliteError;
use crate::files::database;
use enrich_store::sync::{Mutex, MutexGuard};
use enrich_store::{EmailHash, opt_out_range};

/// A pool of connections, one per core.
pub(super) struct Readers {
    pool: Vec<Mutex<Reader>>,
    /// Set if a reader may not see the newest opt-outs, because its transaction could not be ended in time.
    is_stale: AtomicBool,
}

/// How long a refresh waits for lookups that wait for the disk, before others fail. An opt-out applies within a
/// second.
const REFRESH_TIME_MAX: Duration = Duration::from_millis(500);

/// A connection with a read transaction that stays open between lookups. A lookup that opens its own
/// transaction takes five times as long.
struct Reader(Connection);

impl Readers {
    pub(super) fn open(path: &Path) -> Result<Self, SqliteError> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let reader = || Ok(Mutex::new(Reader(database::open(path)?)));
        let pool = (0..cores).map(|_| reader()).collect::<Result<_, SqliteError>>()?;
        Ok(Self { pool, is_stale: AtomicBool::new(false) })
    }

    /// Ends all read transactions, so that the next lookups see the commits until now.
    pub(super) fn refresh(&self) -> Result<(), SqliteError> {
        // Even without a change: while a read transaction is open, SQLite cannot truncate the write-ahead
        // log.
        let limit = REFRESH_TIME_MAX.div_f64(self.pool.len() as f64);
        let ended = self.pool.iter().map(|reader| {
            let in_time = reader.try_lock_for(limit);
            let mut reader = in_time.unwrap_or_else(|| {
                self.is_stale.store(true, Ordering::Release);
                reader.lock()
            });
            reader.end_transaction()
        });
        let refreshed = ended.fold(Ok(()), Result::and);
        self.is_stale.store(refreshed.is_err(), Ordering::Release);
        refreshed
    }

    /// Fails if lookups fail, because the last refresh failed or does not end, and they could find a person who opted
    /// out.
    pub(super) fn check(&self) -> Result<(), SqliteError> {
        if self.is_stale.load(Ordering::Acquire) { Err(SqliteError::OptOuts) } else { Ok(()) }
    }

    pub(super) fn find(
        &self,
        hash: &EmailHash,
        confidence_min: f64,
    ) -> Result<Option<ProfileUrl>, SqliteError> {
        self.free()?.find(hash, confidence_min)
    }

    pub(super) fn has_opted_out(&self, hash: &EmailHash) -> Result<bool, SqliteError> {
        self.free()?.has_opted_out(hash)
    }

    /// Returns a connection that no other thread uses: that of this thread if possible, whose pages are in
    /// the core's caches.
    fn free(&self) -> Result<MutexGuard<'_, Reader>, SqliteError> {
        self.check()?;
        let (others, first) = self.pool.split_at(thread_number() % self.pool.len());
        let free = first.iter().chain(others).find_map(Mutex::try_lock);
        Ok(free.unwrap_or_else(|| first[0].lock()))
    }
}

/// Returns a number of this thread. The threads that look up people have consecutive ones.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl Reader {
    /// Finds a person. A person who opted out has no record; the statement checks the opt-out too, so that a
    /// lookup fails if it cannot be read.
    fn find(&mut self, hash: &EmailHash, confidence_min: f64) -> Result<Option<ProfileUrl>, SqliteError> {
        self.begin_transaction()?;
        let mut select = self.0.prepare_cached(
            "SELECT profile FROM person WHERE email_hash = ?1 AND confidence >= ?2
             AND NOT EXISTS (SELECT 1 FROM opt_out WHERE email_hash BETWEEN ?3 AND ?4 AND NOT is_withdrawn)",
        )?;
        let [low, high] = opt_out_range(hash);
        let row = select.query_row(params![hash, confidence_min, low, high], |row| {
            parsed(row, 0, |name: String| ProfileUrl::from_name(&name))
        });
        Ok(row.optional()?)
    }

    fn has_opted_out(&mut self, hash: &EmailHash) -> Result<bool, SqliteError> {
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
