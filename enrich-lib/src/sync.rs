//! Mutexes. `tests/interleavings` replaces them with those of the shuttle scheduler.

use std::sync::PoisonError;
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

/// Locks `mutex` and ignores poisoning, because every critical section of this crate leaves its data
/// consistent when it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
