//! The memory shared by the connections to a database: SQLite's index of the write-ahead log. It is lost in a
//! power cut.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::locks::LogLocks;

/// The only region size that SQLite uses.
pub(crate) const REGION_BYTES: usize = 32 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Shm {
    regions: Mutex<Vec<Region>>,
    locks: Mutex<LogLocks>,
}

/// A region of shared memory. It is boxed, because its address must not change while it is mapped. Only
/// SQLite accesses it.
#[derive(Debug)]
struct Region(Box<UnsafeCell<[u64; REGION_BYTES / 8]>>);

impl Shm {
    pub(crate) fn locks(&self) -> MutexGuard<'_, LogLocks> {
        lock(&self.locks)
    }

    /// Returns the address of a region. Returns `None` if it does not exist and `make` is `false`.
    pub(crate) fn region(&self, index: usize, make: bool) -> Option<*mut c_void> {
        let mut regions = lock(&self.regions);
        if make {
            while regions.len() <= index {
                regions.push(Region(Box::new(UnsafeCell::new([0; REGION_BYTES / 8]))));
            }
        }
        regions.get(index).map(|region| region.0.get().cast())
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
