//! The age of the last tick of the accounts.

use std::time::Duration;

use enrich_store::sync::Mutex;
use tokio::time::Instant;

/// The time of the last tick that succeeded.
pub struct Ticks(Mutex<Instant>);

impl Default for Ticks {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Ticks {
    /// The age from which the accounts are not current: no key, grant or quota may be older than a second.
    pub const AGE_MAX: Duration = Duration::from_secs(3);

    pub fn record(&self) {
        *self.0.lock() = Instant::now();
    }

    pub fn age(&self) -> Duration {
        self.0.lock().elapsed()
    }
}
