//! The two kinds of locks that SQLite requires from a file system. Requests never block: they fail if a lock
//! is taken.

use std::collections::BTreeMap;

/// The id of an open file.
pub(crate) type HandleId = u64;

/// Another open file has a conflicting lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

/// The lock level of an open database (<https://sqlite.org/lockingv3.html>), numbered as in SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Unlocked = 0,
    Shared = 1,
    Reserved = 2,
    Pending = 3,
    Exclusive = 4,
}

#[derive(Debug, Default)]
pub(crate) struct FileLocks(BTreeMap<HandleId, Level>);

impl FileLocks {
    /// Raises the lock of `handle` to the level `wanted`.
    pub(crate) fn raise(&mut self, handle: HandleId, wanted: Level) -> Result<(), Busy> {
        let compatible = |other: Level| match wanted {
            Level::Unlocked => true,
            Level::Shared => other < Level::Pending,
            Level::Reserved | Level::Pending => other < Level::Reserved,
            Level::Exclusive => other == Level::Unlocked,
        };
        if !self.0.iter().all(|(&id, &other)| id == handle || compatible(other)) {
            return Err(Busy);
        }
        let level = self.0.entry(handle).or_insert(Level::Unlocked);
        *level = wanted.max(*level);
        Ok(())
    }

    /// Lowers the lock of `handle` to the level `kept`.
    pub(crate) fn lower(&mut self, handle: HandleId, kept: Level) {
        match kept {
            Level::Unlocked => drop(self.0.remove(&handle)),
            _ => drop(self.0.entry(handle).and_modify(|level| *level = kept.min(*level))),
        }
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.0.values().any(|level| *level >= Level::Reserved)
    }
}

/// The eight locks of a write-ahead log (<https://sqlite.org/walformat.html#wal_locks>), one bit each.
#[derive(Debug, Default)]
pub(crate) struct LogLocks(BTreeMap<HandleId, Held>);

#[derive(Debug, Default)]
struct Held {
    shared: u8,
    exclusive: u8,
}

impl LogLocks {
    pub(crate) fn share(&mut self, handle: HandleId, bits: u8) -> Result<(), Busy> {
        self.refuse_if(handle, |other| other.exclusive & bits != 0)?;
        self.0.entry(handle).or_default().shared |= bits;
        Ok(())
    }

    pub(crate) fn exclude(&mut self, handle: HandleId, bits: u8) -> Result<(), Busy> {
        self.refuse_if(handle, |other| (other.exclusive | other.shared) & bits != 0)?;
        self.0.entry(handle).or_default().exclusive |= bits;
        Ok(())
    }

    pub(crate) fn release(&mut self, handle: HandleId, bits: u8) {
        let held = self.0.entry(handle).or_default();
        held.shared &= !bits;
        held.exclusive &= !bits;
    }

    fn refuse_if(&self, handle: HandleId, conflicts: impl Fn(&Held) -> bool) -> Result<(), Busy> {
        let refused = self.0.iter().any(|(&id, held)| id != handle && conflicts(held));
        if refused { Err(Busy) } else { Ok(()) }
    }
}
