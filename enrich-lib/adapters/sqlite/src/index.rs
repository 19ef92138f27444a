//! The people directory in memory. Lookups do not wait for the disk.
//!
//! The index consists of [`PARTS`] parts. Each commit records which parts it changes, and a refresh reads only those. A
//! new part replaces the old one under its lock, so a lookup sees either one. Opt-outs take effect before changed parts
//! are read.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use rusqlite::types::Type;

use crate::database::Watch;
use crate::error::StoreError;
use crate::hash::EmailHash;
use crate::part::{PARTS, Part, PartBuilder, PartId, hashes, part_of};
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, lock};

/// Maximum number of parts to read at once: 40,000 of 10⁷ people, in about 10 ms. This bounds how long an opt-out waits
/// during a refresh.
const READ_PARTS: usize = 256;

pub(crate) struct Index {
    slots: Box<[Line]>,
    loader: Mutex<Loader>,
    /// Set if the last refresh could read all opt-outs.
    has_opt_outs: AtomicBool,
}

/// A slot, aligned so that the fields of a lookup are in one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Line(RwLock<Slot>);

#[derive(Default)]
struct Slot {
    part: Part,
    /// The part's change count when it was read.
    changes: i64,
    /// All opt-outs in this part, including those made since the part was read.
    opt_outs: Box<[EmailHash]>,
}

struct Loader {
    watch: Watch,
    disk: Disk,
}

struct Disk {
    db: Connection,
    confidence_min: f64,
    /// The id of the newest opt-out that was applied.
    opt_out: Cell<i64>,
}

impl Index {
    /// Reads the whole directory, without matches below `confidence_min`.
    pub(crate) fn load(db: Connection, confidence_min: f64) -> Result<Self, StoreError> {
        let watch = Watch::new(&db)?;
        let loader = Loader { watch, disk: Disk { db, confidence_min, opt_out: Cell::new(0) } };
        let slots = (0..PARTS).map(|_| Line::default()).collect();
        let index = Self { slots, loader: Mutex::new(loader), has_opt_outs: AtomicBool::new(false) };
        {
            let disk = &lock(&index.loader).disk;
            index.take_opt_outs(disk)?;
            index.read_parts(disk, 0..=PartId::MAX)?;
        }
        Ok(index)
    }

    /// Applies the commits since the last call.
    pub(crate) fn refresh(&self) -> Result<(), StoreError> {
        let Loader { watch, disk } = &mut *lock(&self.loader);
        watch.on_change(&disk.db, || {
            self.take_opt_outs(disk)?;
            self.changed_parts(disk)?.into_iter().try_for_each(|parts| self.read_parts(disk, parts))
        })
    }

    /// Finds a person and converts the name of the profile with `make`.
    pub(crate) fn find<T>(
        &self,
        hash: &EmailHash,
        make: impl FnOnce(&[u8]) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let slot = self.slot(hash)?;
        if slot.opt_outs.contains(hash) { Ok(None) } else { slot.part.find(hash).map(make).transpose() }
    }

    pub(crate) fn is_suppressed(&self, hash: &EmailHash) -> Result<bool, StoreError> {
        Ok(self.slot(hash)?.opt_outs.contains(hash))
    }

    /// Returns the slot of a hash. Fails if the opt-outs could not be read, because a lookup must not find an opted-out
    /// person.
    fn slot(&self, hash: &EmailHash) -> Result<RwLockReadGuard<'_, Slot>, StoreError> {
        if self.has_opt_outs.load(Ordering::Acquire) {
            Ok(self.read(part_of(hash)))
        } else {
            Err(StoreError::OptOuts)
        }
    }

    fn take_opt_outs(&self, disk: &Disk) -> Result<(), StoreError> {
        let taken = disk.opt_outs(|hash| {
            let mut slot = self.write(part_of(&hash));
            slot.opt_outs = [&slot.opt_outs[..], &[hash]].concat().into();
        });
        self.has_opt_outs.store(taken.is_ok(), Ordering::Release);
        taken
    }

    /// Returns the parts that changed since they were read. Adjacent parts are merged into ranges.
    fn changed_parts(&self, disk: &Disk) -> Result<Vec<RangeInclusive<PartId>>, StoreError> {
        let mut changed: Vec<RangeInclusive<PartId>> = Vec::new();
        disk.changes(0..=PartId::MAX, |id, changes| {
            if self.read(id).changes == changes {
                return;
            }
            match changed.last_mut() {
                Some(parts) if parts.end().checked_add(1) == Some(id) => *parts = *parts.start()..=id,
                _ => changed.push(id..=id),
            }
        })?;
        Ok(changed)
    }

    fn read_parts(&self, disk: &Disk, parts: RangeInclusive<PartId>) -> Result<(), StoreError> {
        let parts: Vec<PartId> = parts.collect();
        for some in parts.chunks(READ_PARTS) {
            if let [first, .., last] | [first @ last] = some {
                disk.parts(*first..=*last, |id, part, changes| self.put(id, part, changes))?;
                self.take_opt_outs(disk)?;
            }
        }
        Ok(())
    }

    fn put(&self, id: PartId, part: Part, changes: i64) {
        let mut slot = self.write(id);
        slot.changes = changes;
        let before = std::mem::replace(&mut slot.part, part);
        drop(slot); // free the old part's memory outside the lock
        drop(before);
    }

    fn read(&self, id: PartId) -> RwLockReadGuard<'_, Slot> {
        self.slots[usize::from(id)].0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, id: PartId) -> RwLockWriteGuard<'_, Slot> {
        self.slots[usize::from(id)].0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    /// Passes the opt-outs since the last call to `take`.
    fn opt_outs(&self, mut take: impl FnMut(EmailHash)) -> Result<(), StoreError> {
        let mut select =
            self.db.prepare_cached("SELECT id, email_hash FROM suppressed WHERE id > ? ORDER BY id")?;
        let mut rows = select.query([self.opt_out.get()])?;
        while let Some(row) = rows.next()? {
            let (id, hash) = (row.get(0)?, row.get(1)?);
            take(hash);
            self.opt_out.set(id);
        }
        Ok(())
    }

    /// Passes the change count of each part in `parts` to `take`, in order. Skips parts that never changed.
    fn changes(
        &self,
        parts: RangeInclusive<PartId>,
        mut take: impl FnMut(PartId, i64),
    ) -> Result<(), StoreError> {
        let mut select =
            self.db.prepare_cached("SELECT id, changes FROM part WHERE id BETWEEN ? AND ? ORDER BY id")?;
        let mut rows = select.query([parts.start(), parts.end()])?;
        while let Some(row) = rows.next()? {
            take(row.get(0)?, row.get(1)?);
        }
        Ok(())
    }

    /// Reads `parts`, each with its change count, in one snapshot.
    fn parts(
        &self,
        parts: RangeInclusive<PartId>,
        mut take: impl FnMut(PartId, Part, i64),
    ) -> Result<(), StoreError> {
        let tx = self.db.unchecked_transaction()?;
        let first = *parts.start();
        let mut changes = vec![0; parts.len()];
        self.changes(parts.clone(), |id, times| changes[usize::from(id - first)] = times)?;
        let mut builder = PartBuilder::default();
        let mut parts = parts.zip(changes).peekable();

        let [low, high] = hashes(first, first + (parts.len() - 1) as PartId);
        let mut select = tx.prepare_cached(
            "SELECT email_hash, profile FROM person
             WHERE email_hash BETWEEN ?1 AND ?2 AND confidence >= ?3 ORDER BY email_hash",
        )?;
        let mut rows = select.query((low, high, self.confidence_min))?;
        while let Some(row) = rows.next()? {
            let hash: EmailHash = row.get(0)?;
            while let Some((id, changes)) = parts.next_if(|(id, _)| *id < part_of(&hash)) {
                take(id, builder.build(), changes);
            }
            let name = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
            builder
                .push(&hash, name)
                .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, Box::new(error)))?;
        }
        for (id, changes) in parts {
            take(id, builder.build(), changes);
        }
        Ok(())
    }
}
