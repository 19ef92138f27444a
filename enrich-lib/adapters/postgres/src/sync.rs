//! The locks, in one place.

use std::sync::PoisonError;
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock};

/// Every critical section of this crate leaves what it guards whole, so one that panicked spoils nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
