//! Locking. Locks are held briefly and never across an await point.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex` and ignores poisoning: every critical section of this crate keeps the data consistent even if it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
