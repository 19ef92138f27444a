//! The time as a store sees it.

use std::time::Duration;

use enrich_lib::model::Timestamp;

/// A reading of the two clocks of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The time of day, for ids and rows.
    pub wall: Timestamp,
    /// The time since an arbitrary origin, on a monotonic clock. Deadlines of holds and of spends depend on
    /// it alone, so that setting the wall clock does not end them.
    pub elapsed: Duration,
}

impl Clocks {
    /// Returns clocks that show the same time, for tests and simulations, in which the wall clock is never set.
    pub fn simulated(wall: Timestamp) -> Self {
        Self { wall, elapsed: Duration::from_millis(wall.unix_ms()) }
    }
}
