//! Bulk import into the people directory. The caller's thread collects and sorts rows; a second thread writes
//! them.

use std::fs;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_store::{
    EmailHash, EmailHasher, Imported, RefusedRemoval, RemovalLimit, StoreError, opt_out_range,
};
use rusqlite::{Connection, Rows, params};

use crate::error::SqliteError;
use crate::files::database;
use crate::files::dir::ImportLock;

/// Limits on memory and commits. Tests make them small.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ImportLimits {
    /// Rows in the first chunk, small so that writing starts early. Each following chunk has twice as many.
    pub first_chunk_rows: usize,
    /// Maximum number of rows in a chunk.
    ///
    /// Two chunks are in memory, typically 200 MB. Each chunk updates pages all over a large directory, so
    /// chunks are large to write each page fewer times.
    pub chunk_rows_max: usize,
    /// Maximum bytes of the names in a chunk.
    pub chunk_name_bytes_max: usize,
    /// Rows in one commit. They are adjacent in the file. An opt-out waits for at most one commit and 2 s.
    pub batch_rows: usize,
    /// Bytes of the write-ahead log above which the import waits for lookups that read, and empties the log. SQLite
    /// appends to it for as long as a lookup reads at each commit.
    pub log_bytes_max: u64,
}

impl ImportLimits {
    pub(super) const DEFAULT: Self = Self {
        first_chunk_rows: 100_000,
        chunk_rows_max: 2_000_000,
        chunk_name_bytes_max: 64 * 1024 * 1024,
        batch_rows: 100_000,
        log_bytes_max: 64 * 1024 * 1024,
    };
}

/// SQLite's page cache during an import, in KiB. It usually holds all pages that one commit changes.
const CACHE_KIB: i64 = 64 * 1024;

/// An import in progress. Add rows with [`Import::add`], then call [`Import::finish`].
///
/// Each batch is one commit. An interrupted import leaves complete batches and can be run again. If an email
/// occurs more than once, the last row wins. An import that replaces all people writes the first batch when all
/// rows were added. Dropping it loses the rows that are not written yet.
#[derive(derive_more::Debug)]
#[must_use = "rows are lost without `finish` or `stop`"]
#[debug("Import {{ .. }}")]
pub struct Import<'p> {
    hasher: &'p EmailHasher,
    chunk: Chunk,
    chunk_rows: usize,
    limits: ImportLimits,
    writer: Writer,
    /// Unlocked after the writer has ended.
    lock: ImportLock,
}

impl<'p> Import<'p> {
    pub(super) fn start(
        hasher: &'p EmailHasher,
        db: Connection,
        lock: ImportLock,
        limits: ImportLimits,
        removal: Option<RemovalLimit>,
    ) -> Result<Self, SqliteError> {
        db.pragma_update(None, "cache_size", -CACHE_KIB)?;
        if removal.is_some() {
            db.execute_batch(
                "CREATE TEMP TABLE imported (email_hash BLOB PRIMARY KEY, profile TEXT, confidence REAL) STRICT, WITHOUT ROWID",
            )?;
        }
        let (chunk, chunk_rows) = (Chunk::default(), limits.first_chunk_rows);
        let writer = Writer::start(db, limits, removal);
        Ok(Self { hasher, chunk, chunk_rows, limits, writer, lock })
    }

    /// Adds a person. `confidence`, from 0 to 1, is the certainty of the match.
    ///
    /// Errors may belong to earlier rows.
    pub fn add(&mut self, email: &Email, profile: &ProfileUrl, confidence: f64) -> Result<(), SqliteError> {
        self.chunk.push(self.hasher.hash(email), profile.name(), confidence);
        let Chunk { rows, names } = &self.chunk;
        if rows.len() < self.chunk_rows && names.len() < self.limits.chunk_name_bytes_max {
            return Ok(());
        }
        self.chunk_rows = self.limits.chunk_rows_max.min(self.chunk_rows * 2);
        let next = Chunk { rows: Vec::with_capacity(self.chunk_rows), names: String::new() };
        self.writer.write(std::mem::replace(&mut self.chunk, next))
    }

    /// Writes the remaining rows and returns the counts. An import of
    /// [`People::replace`](super::People::replace) then removes all other people. If there are more than its limit,
    /// it changes nothing. Has the errors of [`Import::stop`].
    pub fn finish(self) -> Result<Imported, SqliteError> {
        self.finish_if(|| true)
    }

    /// Finishes the import, but keeps all other people if `may_remove` returns `false`. It is called at most once, when
    /// all rows are written. Has the errors of [`Import::stop`].
    pub fn finish_if(
        self,
        may_remove: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Imported, SqliteError> {
        let _ = self.writer.may_remove.set(Box::new(may_remove));
        self.stop()
    }

    /// Ends an incomplete import: writes the remaining rows, deletes no people, and returns the counts.
    ///
    /// Errors: [`SqliteError::Replaced`] if the directory was replaced meanwhile.
    pub fn stop(mut self) -> Result<Imported, SqliteError> {
        self.writer.write(self.chunk)?;
        let imported = self.writer.end()?;
        self.lock.check()?;
        Ok(imported)
    }
}

/// Rows with their names stored in one string.
#[derive(Default)]
struct Chunk {
    rows: Vec<Row>,
    names: String,
}

struct Row {
    hash: EmailHash,
    name_at: u32,
    name_len: u32,
    confidence: f64,
}

impl Chunk {
    fn push(&mut self, hash: EmailHash, name: &str, confidence: f64) {
        // The names of a chunk are far smaller than 4 GiB.
        let (name_at, name_len) = (self.names.len() as u32, name.len() as u32);
        self.names.push_str(name);
        self.rows.push(Row { hash, name_at, name_len, confidence });
    }

    /// Sorts rows into file order. Rows of the same email keep their order.
    fn sort(&mut self) {
        self.rows.sort_unstable_by_key(|row| (u128::from_be_bytes(row.hash), row.name_at));
    }

    fn name(&self, row: &Row) -> &str {
        &self.names[row.name_at as usize..][..row.name_len as usize]
    }
}

type MayRemove = Box<dyn Fn() -> bool + Send + Sync>;

/// The writer thread. While it writes one chunk, the caller fills the next.
struct Writer {
    chunks: Option<SyncSender<Chunk>>,
    /// Set before the last chunk of an import that is finished.
    may_remove: Arc<OnceLock<MayRemove>>,
    thread: Option<JoinHandle<Result<Imported, SqliteError>>>,
}

impl Writer {
    fn start(mut db: Connection, limits: ImportLimits, removal: Option<RemovalLimit>) -> Self {
        let (sender, chunks) = sync_channel(0);
        let may_remove = Arc::new(OnceLock::new());
        let finished = may_remove.clone();
        let thread = thread::spawn(move || match removal {
            None => write_chunks(&mut db, chunks, &limits),
            Some(removal) => replace(&mut db, chunks, &limits, removal, &finished),
        });
        Self { chunks: Some(sender), may_remove, thread: Some(thread) }
    }

    /// Sends a chunk to the writer thread, and waits until the previous one is written.
    ///
    /// Errors belong to previous chunks.
    fn write(&mut self, mut chunk: Chunk) -> Result<(), SqliteError> {
        chunk.sort();
        match self.chunks.as_ref().map(|chunks| chunks.send(chunk)) {
            Some(Ok(())) => Ok(()),
            _ => self.end().and(Err(StoreError::Stopped.into())),
        }
    }

    fn end(&mut self) -> Result<Imported, SqliteError> {
        self.chunks = None;
        let written = self.thread.take().and_then(|thread| thread.join().ok());
        written.unwrap_or(Err(StoreError::Stopped.into()))
    }
}

impl Drop for Writer {
    /// Waits for the writer thread, so that nothing is written after the drop.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn write_chunks(
    db: &mut Connection,
    chunks: Receiver<Chunk>,
    limits: &ImportLimits,
) -> Result<Imported, SqliteError> {
    let mut done = Imported::default();
    for chunk in chunks {
        for batch in chunk.rows.chunks(limits.batch_rows) {
            let changed = write_batch(db, &chunk, batch)?;
            limit_log(db, limits)?;
            done.changed += changed;
            done.unchanged += batch.len() as u64 - changed;
        }
    }
    Ok(done)
}

/// Collects all rows in a temporary table before it writes any, so that a removal that is refused changes
/// nothing. Written rows would make the same people a smaller share of the directory the next time. An import
/// that is not complete writes its rows and removes nobody.
fn replace(
    db: &mut Connection,
    chunks: Receiver<Chunk>,
    limits: &ImportLimits,
    removal: RemovalLimit,
    may_remove: &OnceLock<MayRemove>,
) -> Result<Imported, SqliteError> {
    let mut rows = 0;
    for chunk in chunks {
        collect(db, &chunk)?;
        rows += chunk.rows.len() as u64;
    }
    let may_remove = may_remove.get();
    if may_remove.is_some() {
        let (of, people) = count_others(db)?;
        if !removal.allows(people, of) {
            return Ok(Imported { refused: Some(RefusedRemoval { people, of }), ..Imported::default() });
        }
    }
    let (mut changed, mut last) = (0, BEFORE_ALL.to_vec());
    loop {
        let batch = read_collected(db, &last, limits.batch_rows)?;
        let Some(row) = batch.rows.last() else { break };
        changed += write_batch(db, &batch, &batch.rows)?;
        limit_log(db, limits)?;
        last = row.hash.to_vec();
    }
    let removed = if may_remove.is_some_and(|may| may()) { remove_others(db, limits)? } else { 0 };
    Ok(Imported { changed, unchanged: rows - changed, removed, refused: None })
}

fn collect(db: &mut Connection, chunk: &Chunk) -> Result<(), SqliteError> {
    let tx = db.transaction()?;
    {
        let mut insert = tx.prepare_cached("INSERT OR REPLACE INTO temp.imported VALUES (?, ?, ?)")?;
        for row in &chunk.rows {
            insert.execute(params![row.hash, chunk.name(row), row.confidence])?;
        }
    }
    Ok(tx.commit()?)
}

/// A hash before all others: each is longer.
const BEFORE_ALL: &[u8] = &[];

/// Returns the next rows after `last`.
fn read_collected(db: &Connection, last: &[u8], batch_rows: usize) -> Result<Chunk, SqliteError> {
    let mut select = db.prepare_cached(
        "SELECT email_hash, profile, confidence FROM temp.imported WHERE email_hash > ?1
         ORDER BY email_hash LIMIT ?2",
    )?;
    let (mut rows, mut batch) = (select.query(params![last, batch_rows])?, Chunk::default());
    while let Some(row) = rows.next()? {
        batch.push(row.get(0)?, &row.get::<_, String>(1)?, row.get(2)?);
    }
    Ok(batch)
}

/// Writes rows in one commit. Returns how many of them changed the directory.
fn write_batch(db: &mut Connection, chunk: &Chunk, batch: &[Row]) -> Result<u64, SqliteError> {
    insert_batch(db, chunk, batch).inspect_err(|_| {
        // Truncate the log of the failed batch: spends need the space on the same disk.
        let _ = database::empty_log(db);
    })
}

fn insert_batch(db: &mut Connection, chunk: &Chunk, batch: &[Row]) -> Result<u64, SqliteError> {
    let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(0) };
    let tx = database::begin(db)?;
    let mut changed = 0;
    {
        // Reads the opt-outs in the order of the rows. A subquery for each row takes a quarter of the import.
        let mut select = tx.prepare_cached(
            "SELECT email_hash FROM opt_out WHERE email_hash BETWEEN ? AND ? AND NOT is_withdrawn ORDER BY email_hash",
        )?;
        let [[low, _], [_, high]] = [first, last].map(|row| opt_out_range(&row.hash));
        let mut opt_outs = select.query([low, high])?;
        let mut next = next_opt_out(&mut opt_outs)?;
        let mut upsert = tx.prepare_cached(
            "INSERT INTO person (email_hash, profile, confidence) VALUES (?, ?, ?)
             ON CONFLICT (email_hash) DO UPDATE SET profile = excluded.profile, confidence = excluded.confidence
             WHERE profile <> excluded.profile OR confidence <> excluded.confidence",
        )?;
        for row in batch {
            let [low, high] = opt_out_range(&row.hash);
            while next.is_some_and(|opt_out| opt_out < low) {
                next = next_opt_out(&mut opt_outs)?;
            }
            if next.is_none_or(|opt_out| opt_out > high) {
                changed += upsert.execute(params![row.hash, chunk.name(row), row.confidence])? as u64;
            }
        }
    }
    tx.commit()?;
    Ok(changed)
}

/// Returns the number of people, and of those who are not in the import.
fn count_others(db: &Connection) -> Result<(u64, u64), SqliteError> {
    let select = "SELECT count(*), count(*) FILTER (
             WHERE NOT EXISTS (SELECT 1 FROM temp.imported i WHERE i.email_hash = p.email_hash)
         ) FROM person p";
    Ok(db.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Removes the people who are not in the import, in commits of a batch. Returns their number.
fn remove_others(db: &mut Connection, limits: &ImportLimits) -> Result<u64, SqliteError> {
    let (mut removed, mut last) = (0, BEFORE_ALL.to_vec());
    loop {
        // Before the transaction, so that opt-outs do not wait for a search through the directory. No other import
        // can add people meanwhile.
        let hashes = {
            let mut select = db.prepare_cached(
                "SELECT p.email_hash FROM person p WHERE p.email_hash > ?1
                 AND NOT EXISTS (SELECT 1 FROM temp.imported i WHERE i.email_hash = p.email_hash)
                 ORDER BY p.email_hash LIMIT ?2",
            )?;
            let rows = select.query_map(params![last, limits.batch_rows], |row| row.get(0))?;
            rows.collect::<Result<Vec<EmailHash>, _>>()?
        };
        let Some(hash) = hashes.last() else { return Ok(removed) };
        last = hash.to_vec();
        let tx = database::begin(db)?;
        let mut delete = tx.prepare_cached("DELETE FROM person WHERE email_hash = ?")?;
        for hash in &hashes {
            removed += delete.execute([hash])? as u64;
        }
        drop(delete);
        tx.commit()?;
        limit_log(db, limits)?;
    }
}

/// Empties the log if it is too large. Waits for readers for a short time only, because opt-outs wait meanwhile, and a
/// check of the people reads for minutes.
fn limit_log(db: &mut Connection, limits: &ImportLimits) -> Result<(), SqliteError> {
    const READERS_TIME_MAX: Duration = Duration::from_secs(2);

    let log = db.path().and_then(|path| fs::metadata(format!("{path}-wal")).ok());
    if log.is_some_and(|log| log.len() > limits.log_bytes_max) {
        db.busy_timeout(READERS_TIME_MAX)?;
        let emptied = database::empty_log(db);
        database::wait_for_writers(db)?;
        emptied?;
    }
    Ok(())
}

fn next_opt_out(rows: &mut Rows<'_>) -> Result<Option<EmailHash>, SqliteError> {
    Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
}
