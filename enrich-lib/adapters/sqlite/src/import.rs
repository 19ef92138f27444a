//! Filling the people directory.

use std::fmt;

use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use rusqlite::{Connection, TransactionBehavior, params};

use crate::error::StoreError;
use crate::hash::{EmailHash, EmailHasher};

/// Rows in one commit. They are sorted by hash first, so that neighbours in the file are written together.
const BATCH_ROWS: usize = 100_000;

/// An import under way: add rows, then finish. Each batch is one commit; an import that breaks off leaves whole
/// batches, and is simply run again. The last row of an email counts.
pub struct Import<'p> {
    hasher: &'p EmailHasher,
    db: Connection,
    batch: Vec<(EmailHash, ProfileUrl, f64)>,
    done: Imported,
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
    pub(crate) fn new(hasher: &'p EmailHasher, db: Connection) -> Self {
        Self { hasher, db, batch: Vec::with_capacity(BATCH_ROWS), done: Imported::default() }
    }

    /// Adds a person; `confidence`, from 0 to 1, tells how sure the match is.
    pub fn add(&mut self, email: &Email, profile: ProfileUrl, confidence: f64) -> Result<(), StoreError> {
        self.batch.push((self.hasher.hash(email), profile, confidence));
        if self.batch.len() == BATCH_ROWS { self.write() } else { Ok(()) }
    }

    /// Writes what is left, and counts.
    pub fn finish(mut self) -> Result<Imported, StoreError> {
        self.write()?;
        Ok(self.done)
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let written = self.write_batch();
        if written.is_err() {
            // What did not fit must not keep the room it took: spends need it, on the same disk.
            let _ = self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        }
        written
    }

    fn write_batch(&mut self) -> Result<(), StoreError> {
        self.batch.sort_by_key(|(hash, ..)| *hash); // stable: of an email's rows, the last stays last
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut changed = 0;
        {
            let mut upsert = tx.prepare_cached(
                "INSERT INTO person (email_hash, profile, confidence) SELECT ?1, ?2, ?3
                 WHERE NOT EXISTS (SELECT 1 FROM suppressed WHERE email_hash = ?1)
                 ON CONFLICT (email_hash) DO UPDATE SET profile = excluded.profile, confidence = excluded.confidence
                 WHERE profile <> excluded.profile OR confidence <> excluded.confidence",
            )?;
            for (hash, profile, confidence) in &self.batch {
                changed += upsert.execute(params![hash, profile.name(), confidence])? as u64;
            }
        }
        tx.commit()?;
        self.done.changed += changed;
        self.done.unchanged += self.batch.len() as u64 - changed;
        self.batch.clear();
        Ok(())
    }
}

impl fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import").field("done", &self.done).finish_non_exhaustive()
    }
}
