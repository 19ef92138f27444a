//! The people directory: which profile belongs to an email.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::TryLockError;
use std::thread;

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::model::{ProfileUrl, Timestamp};
use enrich_lib::ports::Resolver;
use enrich_lib::refusal::PortError;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use crate::column::{ms, parsed};
use crate::database::{self, Schema};
use crate::dir::DataDir;
use crate::error::StoreError;
use crate::hash::{EmailHash, EmailHasher};
use crate::import::Import;
use crate::sync::{Mutex, MutexGuard, lock};

/// The people directory of a data directory.
pub struct People {
    path: PathBuf,
    hasher: EmailHasher,
    /// One a core: a look-up takes one that is free.
    readers: Vec<Mutex<Reader>>,
    confidence_min: f64,
}

/// A connection with a read transaction that stays open from look-up to look-up: a look-up inside one costs a fifth
/// of a look-up that opens its own.
struct Reader {
    db: Connection,
    is_reading: bool,
}

/// What is in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// People with a profile.
    pub people: u64,
    /// Of them, those whose match is below the confidence that a trusted match needs.
    pub untrusted: u64,
    /// People who opted out.
    pub suppressed: u64,
}

impl People {
    /// The least confidence of a trusted match, unless the operator sets another.
    pub const CONFIDENCE_MIN: f64 = 0.8;

    /// Opens the directory, and makes an empty one if there is none: `new_key` is the secret of a new one, 32
    /// cryptographically strong random bytes. A match below `confidence_min` (0 to 1) is not trusted, and so not found.
    pub fn open(dir: &DataDir, confidence_min: f64, new_key: [u8; 32]) -> Result<Self, StoreError> {
        let path = dir.people();
        let hasher = EmailHasher::open(dir, new_key)?;
        database::create(&path, Schema::People)?;
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let reader = || Ok(Mutex::new(Reader { db: database::open(&path)?, is_reading: false }));
        let readers = (0..cores).map(|_| reader()).collect::<Result<_, StoreError>>()?;
        Ok(Self { path, hasher, readers, confidence_min })
    }

    /// Lets look-ups see what any process committed since the last call. To be called twice a second or more.
    pub fn refresh(&self) -> Result<(), StoreError> {
        // Whether there was a change or not: while a transaction is open, the log that it reads from can't be cut off.
        self.readers.iter().try_for_each(|reader| lock(reader).end_transaction())
    }

    /// Starts an import: see [`Import`].
    pub fn import(&self) -> Result<Import<'_>, StoreError> {
        Ok(Import::new(&self.hasher, database::open(&self.path)?))
    }

    /// Opts a person out, for good: the record is deleted, and no import brings it back.
    pub fn suppress(&self, email: &Email, now: Timestamp) -> Result<(), StoreError> {
        let hash = self.hasher.hash(email);
        let mut db = database::open(&self.path)?;
        // What is deleted is overwritten, in the file and not only in its index.
        db.pragma_update(None, "secure_delete", true)?;
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let insert = "INSERT INTO suppressed (email_hash, at) VALUES (?, ?) ON CONFLICT DO NOTHING";
        tx.execute(insert, params![hash, ms(now)])?;
        tx.execute("DELETE FROM person WHERE email_hash = ?", [hash])?;
        tx.commit()?;
        Ok(())
    }

    /// Whether the person behind `email`, in any of its forms, opted out: for a lookup that asks others than this
    /// directory. As fresh as a look-up is.
    pub fn is_suppressed(&self, email: &Email) -> Result<bool, StoreError> {
        self.reader().is_suppressed(&self.hasher.hash(email))
    }

    /// Counts the directory: reads all of it.
    pub fn stats(&self) -> Result<Stats, StoreError> {
        let select = "SELECT count(*), count(*) FILTER (WHERE confidence < ?), (SELECT count(*) FROM suppressed) FROM person";
        let stats = database::open(&self.path)?.query_row(select, [self.confidence_min], |row| {
            Ok(Stats { people: row.get(0)?, untrusted: row.get(1)?, suppressed: row.get(2)? })
        });
        Ok(stats?)
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        let free = self.readers.iter().find_map(|reader| match reader.try_lock() {
            Ok(reader) => Some(reader),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        free.unwrap_or_else(|| lock(&self.readers[0]))
    }
}

#[async_trait]
impl Resolver for People {
    /// Answers from the page cache in about a microsecond, which is why it does not leave the caller's thread.
    async fn find(&self, email: &Email) -> Result<Option<ProfileUrl>, PortError> {
        Ok(self.reader().find(&self.hasher.hash(email), self.confidence_min)?)
    }
}

impl Reader {
    fn find(&mut self, hash: &EmailHash, confidence_min: f64) -> Result<Option<ProfileUrl>, StoreError> {
        self.begin_transaction()?;
        let mut select =
            self.db.prepare_cached("SELECT profile FROM person WHERE email_hash = ? AND confidence >= ?")?;
        let row = select.query_row(params![hash, confidence_min], |row| {
            parsed(row, 0, |name: String| ProfileUrl::from_name(&name))
        });
        Ok(row.optional()?)
    }

    fn is_suppressed(&mut self, hash: &EmailHash) -> Result<bool, StoreError> {
        self.begin_transaction()?;
        let mut select = self.db.prepare_cached("SELECT 1 FROM suppressed WHERE email_hash = ?")?;
        Ok(select.exists([hash])?)
    }

    fn begin_transaction(&mut self) -> Result<(), StoreError> {
        if !self.is_reading {
            self.db.execute_batch("BEGIN")?;
            self.is_reading = true;
        }
        Ok(())
    }

    fn end_transaction(&mut self) -> Result<(), StoreError> {
        if self.is_reading {
            self.db.execute_batch("COMMIT")?;
            self.is_reading = false;
        }
        Ok(())
    }
}

impl fmt::Debug for People {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("People").field("path", &self.path).finish_non_exhaustive()
    }
}
