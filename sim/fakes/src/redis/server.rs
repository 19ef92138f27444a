//! The server: its data and clock.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::counters::Counters;

/// A fake Redis server. Its data outlives connections, until [`clear`](Redis::clear). Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    data: Arc<Mutex<Data>>,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
}

#[derive(Debug, Default)]
pub(super) struct Data {
    pub(super) counters: Counters,
    /// The SHA-1 hashes of the loaded scripts, in hexadecimal.
    pub(super) scripts: BTreeSet<String>,
}

impl Redis {
    /// Creates an empty server. `now` returns its clock, in milliseconds since the Unix epoch.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { data: Arc::default(), now: Arc::new(now) }
    }

    /// Clears all data, as a restart without persistence does.
    pub fn clear(&self) {
        *self.lock() = Data::default();
    }

    pub(super) fn now_ms(&self) -> i64 {
        i64::try_from((self.now)()).unwrap_or(i64::MAX)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Data> {
        self.data.lock()
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("data", &*self.lock()).finish_non_exhaustive()
    }
}
