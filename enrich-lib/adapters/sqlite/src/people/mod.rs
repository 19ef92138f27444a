//! The people directory, which maps emails to profiles.
//!
//! `people.db` is a table of keyed hashes and a table of opt-outs. A lookup is one statement, in a read
//! transaction that stays open and is renewed several times a second: changes of all processes become visible
//! without reading the directory again. The process keeps no people in memory: SQLite reads the pages
//! from the operating system's page cache.

mod import;
mod key;
mod opt_outs;
mod reader;

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::model::{ProfileUrl, Timestamp};
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, OptOuts};
use enrich_store::{EmailHasher, OptOut, PeopleStats, RemovalLimit};
use rusqlite::Connection;

use crate::error::SqliteError;
use crate::files::database::{self, Schema};
use crate::files::dir::DataDir;

pub use self::import::{Import, ImportLimits};

use self::reader::Readers;

/// The people directory of a data directory.
#[derive(derive_more::Debug)]
#[debug("People {{ dir: {dir:?}, .. }}")]
pub struct People {
    dir: DataDir,
    hasher: EmailHasher,
    confidence_min: f64,
    readers: Readers,
}

impl People {
    /// The name of the directory as a [source](Answer::source) of profiles.
    pub const NAME: &str = "people";

    /// Default minimum confidence of a trusted match.
    pub const CONFIDENCE_MIN: f64 = 0.8;

    /// Opens the directory, or creates an empty one. `new_key` is the secret of a new directory: 16
    /// cryptographically strong random bytes. Lookups do not return a match below `confidence_min` (0 to 1).
    ///
    /// Errors: [`SqliteError::PeopleKey`]; [`SqliteError::ForeignPeopleKey`]; [`SqliteError::Damaged`] if the people
    /// were lost.
    pub fn open(dir: &DataDir, confidence_min: f64, new_key: [u8; 16]) -> Result<Self, SqliteError> {
        dir.check_people_not_lost()?;
        let mut db = database::create(&dir.people(), Schema::People)?;
        let hasher = key::open(dir, &mut db, new_key)?;
        let readers = Readers::open(&dir.people())?;
        Ok(Self { dir: dir.clone(), hasher, confidence_min, readers })
    }

    /// Opens the directory like [`People::open`], and checks that it was made under `key`.
    ///
    /// Errors: [`SqliteError::OtherPeopleKey`].
    pub fn open_under(dir: &DataDir, confidence_min: f64, key: [u8; 16]) -> Result<Self, SqliteError> {
        let people = Self::open(dir, confidence_min, key)?;
        match people.hasher.fingerprint() == EmailHasher::new(key).fingerprint() {
            true => Ok(people),
            false => Err(SqliteError::OtherPeopleKey(dir.path().to_owned())),
        }
    }

    /// Makes commits of all processes since the last call visible to lookups. Call it at least twice a second:
    /// otherwise, opt-outs by other processes do not apply.
    pub fn refresh(&self) -> Result<(), SqliteError> {
        self.readers.refresh()
    }

    /// Starts an import: see [`Import`].
    ///
    /// Errors: [`SqliteError::Importing`] if there is another one; [`SqliteError::Moved`] if the directory was copied
    /// to another store.
    pub fn import(&self) -> Result<Import<'_>, SqliteError> {
        self.start_import(ImportLimits::DEFAULT, None)
    }

    /// Starts an import that deletes all people without a row in it, unless there are more than `limit`: see
    /// [`Import::finish`].
    pub fn replace(&self, limit: RemovalLimit) -> Result<Import<'_>, SqliteError> {
        self.start_import(ImportLimits::DEFAULT, Some(limit))
    }

    /// Starts an import with these limits, for tests.
    #[doc(hidden)]
    pub fn start_import(
        &self,
        limits: ImportLimits,
        removal: Option<RemovalLimit>,
    ) -> Result<Import<'_>, SqliteError> {
        let lock = self.dir.lock_for_import()?;
        self.dir.check_not_moved()?;
        Import::start(&self.hasher, self.writable()?, lock, limits, removal)
    }

    /// Opts people out permanently: deletes their records and prevents later imports from adding them again.
    /// Returns how many of them had not opted out before. Includes a [refresh](People::refresh).
    ///
    /// Errors: [`SqliteError::Moved`] if the directory was copied to another store, which would lack the
    /// opt-outs.
    pub fn opt_out(&self, emails: &[Email], now: Timestamp) -> Result<u64, SqliteError> {
        self.change(emails, false, now)
    }

    /// Withdraws opt-outs, so that the next import adds these people again. Returns how many of them had
    /// opted out. Has the errors of [`People::opt_out`].
    pub fn withdraw(&self, emails: &[Email], now: Timestamp) -> Result<u64, SqliteError> {
        self.change(emails, true, now)
    }

    fn change(&self, emails: &[Email], is_withdrawn: bool, at: Timestamp) -> Result<u64, SqliteError> {
        let change = |email| OptOut { email_hash: self.hasher.opt_out_hash(email), is_withdrawn, at };
        let changes: Vec<_> = emails.iter().map(change).collect();
        // In the transaction, because an export waits for it.
        let changed = opt_outs::apply(&mut self.writable()?, &changes, || self.dir.check_not_moved())?;
        self.refresh()?;
        Ok(changed)
    }

    /// Returns the last change of each person who opted out, oldest first.
    pub fn opt_outs(&self) -> Result<Vec<OptOut>, SqliteError> {
        opt_outs::all(&database::open(&self.dir.people())?)
    }

    /// Returns the last change of each person's opt-out in the order of the emails, including withdrawals.
    pub fn opt_outs_of(&self, emails: &[Email]) -> Result<Vec<Option<OptOut>>, SqliteError> {
        let db = database::open(&self.dir.people())?;
        emails.iter().map(|email| opt_outs::find(&db, &self.hasher.opt_out_hash(email))).collect()
    }

    /// Returns the hasher of this directory, under the key in `people.key`.
    pub fn hasher(&self) -> &EmailHasher {
        &self.hasher
    }

    /// Opens a connection whose writes wait for other processes. It overwrites deleted content in the file, not only
    /// the reference to it. This includes the copies that changes leave in pages, which a later deletion would not
    /// find.
    fn writable(&self) -> Result<Connection, SqliteError> {
        let mut db = database::open(&self.dir.people())?;
        db.pragma_update(None, "secure_delete", true)?;
        database::wait_for_writers(&mut db)?;
        Ok(db)
    }

    /// Returns the trusted profile of the person with `email`. Takes a few microseconds if the pages are in
    /// the page cache, and otherwise a read of the disk.
    pub fn get(&self, email: &Email) -> Result<Option<ProfileUrl>, SqliteError> {
        self.readers.find(&self.hasher.hash(email), self.confidence_min)
    }

    /// Returns whether the person with `email`, in any spelling that may reach the person, opted out. For
    /// callers that also query other sources than this directory. The result is as fresh as that of
    /// [`People::get`].
    pub fn has_opted_out(&self, email: &Email) -> Result<bool, SqliteError> {
        self.readers.has_opted_out(&self.hasher.opt_out_hash(email))
    }

    /// Fails if lookups fail, because the last [`People::refresh`] failed or does not end, and they could find a person
    /// who opted out.
    pub fn check(&self) -> Result<(), SqliteError> {
        self.readers.check()
    }

    /// Counts the entries of the directory. Reads all of it.
    pub fn stats(&self) -> Result<PeopleStats, SqliteError> {
        let select = "SELECT count(*), count(*) FILTER (WHERE confidence < ?), (SELECT count(*) FROM opt_out WHERE NOT is_withdrawn)
             FROM person";
        let stats = database::open(&self.dir.people())?.query_row(select, [self.confidence_min], |row| {
            Ok(PeopleStats { people: row.get(0)?, untrusted: row.get(1)?, opt_outs: row.get(2)? })
        });
        Ok(stats?)
    }
}

#[async_trait]
impl Resolver for People {
    /// Runs on the caller's thread, because [`People::get`] takes only microseconds.
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        Ok(Answer::from(self.get(&query.email)?).from_source(Self::NAME))
    }
}

#[async_trait]
impl OptOuts for People {
    /// Runs on the caller's thread, like the lookup.
    async fn contains(&self, email: &Email) -> Result<bool, PortError> {
        Ok(self.has_opted_out(email)?)
    }
}
