//! The memory that the connections to a database share: SQLite's index of the write-ahead log. No cut leaves anything
//! of it.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::locks::LogLocks;

/// The only size that SQLite asks for.
pub(crate) const REGION_BYTES: usize = 32 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Shm {
    regions: Mutex<Vec<Region>>,
    locks: Mutex<LogLocks>,
}

/// Boxed, as its address stays as long as any connection maps it. Only SQLite looks inside.
#[derive(Debug)]
struct Region(Box<UnsafeCell<[u64; REGION_BYTES / 8]>>);

impl Shm {
    pub(crate) fn locks(&self) -> MutexGuard<'_, LogLocks> {
        lock(&self.locks)
    }

    /// Where the region is. None if it is not there and is not to be made.
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
