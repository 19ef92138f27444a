//! The people directory in memory. Lookups do not wait for the disk.
//!
//! The index consists of [`SHARDS`] shards. Each commit records which shards it changes, and a refresh reads only those. A
//! new shard replaces the old one under its lock, so a lookup sees either one. Opt-outs take effect before changed shards
//! are read.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::types::Type;

use crate::database::ChangeDetector;
use crate::error::SqliteError;
use crate::shard::{SHARDS, Shard, ShardBuilder, ShardId, hashes, shard_of};
use enrich_store::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use enrich_store::{EmailHash, opt_out_range};

/// Maximum number of shards to read at once: 40,000 of 10⁷ people, in about 10 ms. This bounds how long an opt-out waits
/// during a refresh.
const SHARDS_PER_READ: usize = 256;

pub(crate) struct Index {
    shards: Box<[Entry]>,
    loader: Mutex<Loader>,
    /// Set if the last refresh could read all opt-outs.
    has_opt_outs: AtomicBool,
    /// The number of people in all shards.
    people: AtomicU64,
}

/// The state of a shard, aligned so that the fields of a lookup are in one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Entry(RwLock<ShardState>);

#[derive(Default)]
struct ShardState {
    shard: Shard,
    /// The shard's change count when it was read.
    changes: i64,
    /// All opt-outs in this shard, including those made since the shard was read.
    opt_outs: Box<[EmailHash]>,
}

struct Loader {
    detector: ChangeDetector,
    disk: Disk,
}

struct Disk {
    db: Connection,
    confidence_min: f64,
    /// The id of the newest change of an opt-out that was applied.
    opt_out: Cell<i64>,
}

impl Index {
    /// Reads the whole directory, without matches below `confidence_min`.
    pub(crate) fn load(db: Connection, confidence_min: f64) -> Result<Self, SqliteError> {
        let detector = ChangeDetector::new(&db)?;
        let loader = Loader { detector, disk: Disk { db, confidence_min, opt_out: Cell::new(0) } };
        let shards = (0..SHARDS).map(|_| Entry::default()).collect();
        let (has_opt_outs, people) = (AtomicBool::new(false), AtomicU64::new(0));
        let index = Self { shards, loader: Mutex::new(loader), has_opt_outs, people };
        {
            let disk = &index.loader.lock().disk;
            index.apply_opt_outs(disk)?;
            index.read_shards(disk, 0..=ShardId::MAX)?;
        }
        Ok(index)
    }

    /// Applies the commits since the last call.
    pub(crate) fn refresh(&self) -> Result<(), SqliteError> {
        let Loader { detector, disk } = &mut *self.loader.lock();
        detector.on_change(&disk.db, || {
            self.apply_opt_outs(disk)?;
            self.changed_shards(disk)?.into_iter().try_for_each(|shards| self.read_shards(disk, shards))
        })
    }

    /// Finds a person and converts the name of the profile with `make`.
    pub(crate) fn find<T>(
        &self,
        hash: &EmailHash,
        make: impl FnOnce(&[u8]) -> Result<T, SqliteError>,
    ) -> Result<Option<T>, SqliteError> {
        let state = self.shard(hash)?;
        let [low, high] = opt_out_range(hash);
        let is_suppressed = state.opt_outs.iter().any(|opt_out| (low..=high).contains(opt_out));
        if is_suppressed { Ok(None) } else { state.shard.find(hash).map(make).transpose() }
    }

    /// Fails if lookups fail, because the opt-outs could not be read.
    pub(crate) fn check(&self) -> Result<(), SqliteError> {
        if self.has_opt_outs.load(Ordering::Acquire) { Ok(()) } else { Err(SqliteError::OptOuts) }
    }

    /// Returns the number of people with a trusted match.
    pub(crate) fn people(&self) -> u64 {
        self.people.load(Ordering::Relaxed)
    }

    /// Returns whether the list has this hash of an opt-out.
    pub(crate) fn is_suppressed(&self, hash: &EmailHash) -> Result<bool, SqliteError> {
        Ok(self.shard(hash)?.opt_outs.contains(hash))
    }

    /// Returns the shard of a hash. Fails if the opt-outs could not be read, because a lookup must not find an opted-out
    /// person.
    fn shard(&self, hash: &EmailHash) -> Result<RwLockReadGuard<'_, ShardState>, SqliteError> {
        self.check()?;
        Ok(self.read(shard_of(hash)))
    }

    fn apply_opt_outs(&self, disk: &Disk) -> Result<(), SqliteError> {
        let taken = disk.opt_outs(|hash, is_withdrawn| {
            let mut state = self.write(shard_of(&hash));
            let others = state.opt_outs.iter().copied().filter(|other| *other != hash);
            state.opt_outs = others.chain((!is_withdrawn).then_some(hash)).collect();
        });
        self.has_opt_outs.store(taken.is_ok(), Ordering::Release);
        taken
    }

    /// Returns the shards that changed since they were read. Adjacent shards are merged into ranges.
    fn changed_shards(&self, disk: &Disk) -> Result<Vec<RangeInclusive<ShardId>>, SqliteError> {
        let mut changed: Vec<RangeInclusive<ShardId>> = Vec::new();
        disk.changes(0..=ShardId::MAX, |id, changes| {
            if self.read(id).changes == changes {
                return;
            }
            match changed.last_mut() {
                Some(shards) if shards.end().checked_add(1) == Some(id) => *shards = *shards.start()..=id,
                _ => changed.push(id..=id),
            }
        })?;
        Ok(changed)
    }

    fn read_shards(&self, disk: &Disk, shards: RangeInclusive<ShardId>) -> Result<(), SqliteError> {
        let shards: Vec<ShardId> = shards.collect();
        for group in shards.chunks(SHARDS_PER_READ) {
            if let [first, .., last] | [first @ last] = group {
                disk.shards(*first..=*last, |id, shard, changes| self.put(id, shard, changes))?;
                self.apply_opt_outs(disk)?;
            }
        }
        Ok(())
    }

    fn put(&self, id: ShardId, shard: Shard, changes: i64) {
        self.people.fetch_add(shard.people(), Ordering::Relaxed);
        let mut state = self.write(id);
        state.changes = changes;
        let before = std::mem::replace(&mut state.shard, shard);
        drop(state); // free the old shard's memory outside the lock
        self.people.fetch_sub(before.people(), Ordering::Relaxed);
        drop(before);
    }

    fn read(&self, id: ShardId) -> RwLockReadGuard<'_, ShardState> {
        self.shards[usize::from(id)].0.read()
    }

    fn write(&self, id: ShardId) -> RwLockWriteGuard<'_, ShardState> {
        self.shards[usize::from(id)].0.write()
    }
}

impl Disk {
    /// Passes the changes of opt-outs since the last call to `take`, each with whether it is a withdrawal.
    fn opt_outs(&self, mut take: impl FnMut(EmailHash, bool)) -> Result<(), SqliteError> {
        let select = "SELECT id, email_hash, is_withdrawn FROM opt_out WHERE id > ? ORDER BY id";
        let mut select = self.db.prepare_cached(select)?;
        let mut rows = select.query([self.opt_out.get()])?;
        while let Some(row) = rows.next()? {
            take(row.get(1)?, row.get(2)?);
            self.opt_out.set(row.get(0)?);
        }
        Ok(())
    }

    /// Passes the change count of each shard in `shards` to `take`, in order. Skips shards that never changed.
    fn changes(
        &self,
        shards: RangeInclusive<ShardId>,
        mut take: impl FnMut(ShardId, i64),
    ) -> Result<(), SqliteError> {
        let mut select =
            self.db.prepare_cached("SELECT id, changes FROM shard WHERE id BETWEEN ? AND ? ORDER BY id")?;
        let mut rows = select.query([shards.start(), shards.end()])?;
        while let Some(row) = rows.next()? {
            take(row.get(0)?, row.get(1)?);
        }
        Ok(())
    }

    /// Reads `shards`, each with its change count, in one snapshot.
    fn shards(
        &self,
        shards: RangeInclusive<ShardId>,
        mut take: impl FnMut(ShardId, Shard, i64),
    ) -> Result<(), SqliteError> {
        let tx = self.db.unchecked_transaction()?;
        let first = *shards.start();
        let mut changes = vec![0; shards.len()];
        self.changes(shards.clone(), |id, times| changes[usize::from(id - first)] = times)?;
        let mut builder = ShardBuilder::default();
        let mut shards = shards.zip(changes).peekable();

        let [low, high] = hashes(first, first + (shards.len() - 1) as ShardId);
        let mut select = tx.prepare_cached(
            "SELECT email_hash, profile FROM person
             WHERE email_hash BETWEEN ?1 AND ?2 AND confidence >= ?3 ORDER BY email_hash",
        )?;
        let mut rows = select.query((low, high, self.confidence_min))?;
        while let Some(row) = rows.next()? {
            let hash: EmailHash = row.get(0)?;
            while let Some((id, changes)) = shards.next_if(|(id, _)| *id < shard_of(&hash)) {
                take(id, builder.build(), changes);
            }
            let name = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
            builder
                .push(&hash, name)
                .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, Box::new(error)))?;
        }
        for (id, changes) in shards {
            take(id, builder.build(), changes);
        }
        Ok(())
    }
}
