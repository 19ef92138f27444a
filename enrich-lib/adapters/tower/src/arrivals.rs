//! The source of time and randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use enrich_lib::model::{Arrival, Timestamp};

/// Provides the id and the arrival time of each lookup. Simulations have their own implementation.
pub trait Arrivals: Send + Sync {
    /// Returns the arrival of the next lookup.
    fn arrive(&self) -> Arrival;
}

/// The system clock and the thread's cryptographically secure generator ([`rand::rng`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemArrivals;

impl SystemArrivals {
    /// Returns the time of the system clock.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
    pub fn now() -> Timestamp {
        // A time before 1970 means that the clock was never set.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_unix_ms(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Arrivals for SystemArrivals {
    fn arrive(&self) -> Arrival {
        // The generator creates an array byte by byte, which takes three times as many instructions as one
        // number.
        let random = rand::random::<u128>().to_ne_bytes();
        Arrival::new(Self::now(), std::array::from_fn(|index| random[index]))
    }
}
