//! The door by which time and randomness enter.

use std::time::{SystemTime, UNIX_EPOCH};

use enrich_lib::model::{Arrival, Timestamp};

/// Gives each lookup its identity and its one reading of the clock. A simulation brings its own.
pub trait Arrivals: Send + Sync {
    /// The arrival of one more lookup.
    fn arrive(&self) -> Arrival;
}

/// The system's clock, and randomness that nobody can guess.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemArrivals;

impl SystemArrivals {
    /// What the system's clock says.
    pub fn now() -> Timestamp {
        // A clock before 1970 is a clock that was never set.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_unix_ms(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Arrivals for SystemArrivals {
    fn arrive(&self) -> Arrival {
        Arrival::new(Self::now(), rand::random())
    }
}
