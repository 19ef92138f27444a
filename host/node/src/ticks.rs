//! The age of the last tick of the database, or of its last complete write of statistics.

use std::time::Duration;

use enrich_store::sync::Mutex;
use tokio::time::Instant;

/// The time of the last call that succeeded.
#[derive(Debug)]
pub struct Ticks(Mutex<Instant>);

impl Default for Ticks {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Ticks {
    /// The age from which keys, grants and quotas are not current. None may be older than a second, with room
    /// for a slow tick.
    pub const AGE_MAX: Duration = Duration::from_secs(3);

    pub(crate) fn record(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Returns the time since the last call that succeeded.
    pub fn age(&self) -> Duration {
        self.0.lock().elapsed()
    }
}
