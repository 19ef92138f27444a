//! Locks with the interface of `parking_lot`: they are not poisoned by a panic.
//!
//! Every critical section leaves its data consistent even if it panics. With `--cfg shuttle`,
//! `tests/interleavings` replaces the locks by those of the shuttle scheduler.

#[cfg(not(shuttle))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(shuttle)]
pub use self::scheduled::{Mutex, RwLock};
#[cfg(shuttle)]
pub use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// Shuttle's locks with the interface of `parking_lot`.
#[cfg(shuttle)]
mod scheduled {
    use std::sync::{PoisonError, TryLockError};
    use std::time::Duration;

    use shuttle::sync;

    /// A mutex of the shuttle scheduler.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// Creates an unlocked mutex.
        pub fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        /// Waits until the mutex is unlocked and locks it.
        pub fn lock(&self) -> sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Locks the mutex, or returns `None` if it is locked.
        pub fn try_lock(&self) -> Option<sync::MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }

        /// As [`Mutex::lock`]: the scheduler has no time, and no lock is held for long.
        pub fn try_lock_for(&self, _: Duration) -> Option<sync::MutexGuard<'_, T>> {
            Some(self.lock())
        }
    }

    /// A reader-writer lock of the shuttle scheduler.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// Creates an unlocked lock.
        pub fn new(value: T) -> Self {
            Self(sync::RwLock::new(value))
        }

        /// Waits until no writer has locked it and locks it for reading.
        pub fn read(&self) -> sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        /// Waits until it is unlocked and locks it for writing.
        pub fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
