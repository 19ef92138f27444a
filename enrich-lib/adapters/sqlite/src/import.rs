//! Filling the people directory: rows are gathered and sorted on the caller's thread, and written on another.

use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use rusqlite::{Connection, TransactionBehavior, params};

use crate::error::StoreError;
use crate::hash::{EmailHash, EmailHasher};
use crate::part::{PartId, count_change, part_of};

/// Rows in the first chunk, so that writing starts early. Each one after it has twice as many.
const FIRST_CHUNK_ROWS: usize = 250_000;

/// The most rows in a chunk, and the most bytes of their names. Two chunks are in memory: 200 MB as a rule. A big
/// directory is written all over by each of them, so they are as large as that.
const CHUNK_ROWS_MAX: usize = 2_000_000;
const CHUNK_NAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Rows in one commit. They are neighbours in the file, and an opt-out waits for one commit at most.
const BATCH_ROWS: usize = 100_000;

/// What SQLite may keep of the file while it writes, in KiB: all that one commit touches, as a rule.
const CACHE_KIB: i64 = 64 * 1024;

/// An import under way: add rows, then finish. Each batch is one commit; an import that breaks off leaves whole
/// batches, and is simply run again. The last row of an email counts.
pub struct Import<'p> {
    hasher: &'p EmailHasher,
    chunk: Chunk,
    chunk_rows: usize,
    writer: Writer,
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Rows that are new in the directory, or differ from what was there.
    pub changed: u64,
    /// Rows that were there before, and rows of people who opted out.
    pub unchanged: u64,
}

impl<'p> Import<'p> {
    pub(crate) fn start(hasher: &'p EmailHasher, db: Connection) -> Result<Self, StoreError> {
        db.pragma_update(None, "cache_size", -CACHE_KIB)?;
        Ok(Self { hasher, chunk: Chunk::default(), chunk_rows: FIRST_CHUNK_ROWS, writer: Writer::start(db) })
    }

    /// Adds a person; `confidence`, from 0 to 1, tells how sure the match is. Errors can be those of rows before it.
    pub fn add(&mut self, email: &Email, profile: &ProfileUrl, confidence: f64) -> Result<(), StoreError> {
        self.chunk.push(self.hasher.hash(email), profile.name(), confidence);
        let Chunk { rows, names } = &self.chunk;
        if rows.len() < self.chunk_rows && names.len() < CHUNK_NAME_BYTES_MAX {
            return Ok(());
        }
        self.chunk_rows = CHUNK_ROWS_MAX.min(self.chunk_rows * 2);
        let next = Chunk { rows: Vec::with_capacity(self.chunk_rows), names: String::new() };
        self.writer.write(std::mem::replace(&mut self.chunk, next))
    }

    /// Writes what is left, and counts.
    pub fn finish(mut self) -> Result<Imported, StoreError> {
        self.writer.write(self.chunk)?;
        self.writer.end()
    }
}

/// Rows, with their names one after the other.
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
        // A chunk's names are far from 4 GiB.
        let (name_at, name_len) = (self.names.len() as u32, name.len() as u32);
        self.names.push_str(name);
        self.rows.push(Row { hash, name_at, name_len, confidence });
    }

    /// In the order of the file; of an email's rows, the last stays last.
    fn sort(&mut self) {
        self.rows.sort_unstable_by_key(|row| (u128::from_be_bytes(row.hash), row.name_at));
    }

    fn name(&self, row: &Row) -> &str {
        &self.names[row.name_at as usize..][..row.name_len as usize]
    }
}

/// The thread that writes, one chunk after the other: while it writes one, the next is gathered.
struct Writer {
    chunks: Option<SyncSender<Chunk>>,
    thread: Option<JoinHandle<Result<Imported, StoreError>>>,
}

impl Writer {
    fn start(db: Connection) -> Self {
        let (sender, chunks) = sync_channel(0);
        Self { chunks: Some(sender), thread: Some(thread::spawn(|| write_chunks(db, chunks))) }
    }

    /// Waits until the chunk before is written. Errors are those of chunks before.
    fn write(&mut self, mut chunk: Chunk) -> Result<(), StoreError> {
        chunk.sort();
        match self.chunks.as_ref().map(|chunks| chunks.send(chunk)) {
            Some(Ok(())) => Ok(()),
            _ => self.end().and(Err(StoreError::Stopped)),
        }
    }

    fn end(&mut self) -> Result<Imported, StoreError> {
        self.chunks = None;
        let written = self.thread.take().and_then(|thread| thread.join().ok());
        written.unwrap_or(Err(StoreError::Stopped))
    }
}

impl Drop for Writer {
    /// Whoever gives up has to know that nothing is written any more.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn write_chunks(mut db: Connection, chunks: Receiver<Chunk>) -> Result<Imported, StoreError> {
    let mut done = Imported::default();
    for chunk in chunks {
        for batch in chunk.rows.chunks(BATCH_ROWS) {
            let changed = write_batch(&mut db, &chunk, batch).inspect_err(|_| {
                // What did not fit must not keep the room it took: spends need it, on the same disk.
                let _ = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            })?;
            done.changed += changed;
            done.unchanged += batch.len() as u64 - changed;
        }
    }
    Ok(done)
}

/// In one commit; how many rows changed something.
fn write_batch(db: &mut Connection, chunk: &Chunk, batch: &[Row]) -> Result<u64, StoreError> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut changed = 0;
    let mut part: Option<PartId> = None;
    {
        let mut upsert = tx.prepare_cached(
            "INSERT INTO person (email_hash, profile, confidence) SELECT ?1, ?2, ?3
             WHERE NOT EXISTS (SELECT 1 FROM suppressed WHERE email_hash = ?1)
             ON CONFLICT (email_hash) DO UPDATE SET profile = excluded.profile, confidence = excluded.confidence
             WHERE profile <> excluded.profile OR confidence <> excluded.confidence",
        )?;
        for row in batch {
            if upsert.execute(params![row.hash, chunk.name(row), row.confidence])? == 0 {
                continue;
            }
            changed += 1;
            if part.replace(part_of(&row.hash)) != Some(part_of(&row.hash)) {
                count_change(&tx, part_of(&row.hash))?;
            }
        }
    }
    tx.commit()?;
    Ok(changed)
}

impl fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import").finish_non_exhaustive()
    }
}
