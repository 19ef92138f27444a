//! The age of the last tick of the database, or of its last complete write of statistics.

use std::time::Duration;

use enrich_store::sync::Mutex;
use thiserror::Error;
use tokio::time::Instant;

/// No call has succeeded for this time.
#[derive(Debug, Error)]
#[error("not refreshed for {} s", .0.as_secs())]
pub(crate) struct Outdated(Duration);

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

    /// Fails if the last call that succeeded is too long ago.
    pub(crate) fn check(&self) -> Result<(), Outdated> {
        match self.age() {
            age if age > Self::AGE_MAX => Err(Outdated(age)),
            _ => Ok(()),
        }
    }

    /// Returns the time since the last call that succeeded.
    pub fn age(&self) -> Duration {
        self.0.lock().elapsed()
    }
}
