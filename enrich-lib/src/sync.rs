//! The locks, in one place, so that a test may put a scheduler's in their stead (tests/interleavings).

use std::sync::PoisonError;
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

/// Every critical section of this crate leaves what it guards whole, so one that panicked spoils nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
