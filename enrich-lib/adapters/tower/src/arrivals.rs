//! The source of time and randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use enrich_lib::model::{Arrival, Timestamp};

/// Provides the id and the arrival time of each lookup. Simulations have their own implementation.
pub trait Arrivals: Send + Sync {
    /// Returns the arrival of the next lookup, whose random bytes are new: lookups with the same id are billed once.
    /// Must not panic: the server would close the connection without a reply.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An id then reveals nothing about the ids of other clients.
    #[test]
    fn each_random_bit_of_an_id_is_independent() {
        let ids: [u128; 257] =
            std::array::from_fn(|_| u128::from_be_bytes(*SystemArrivals.arrive().id.as_bytes()));
        // The bits of the time, the version and the variant are not random.
        let random = (u128::MAX >> 48) & !(0xf << 76) & !(0x3 << 62);
        for bit in (0..128).map(|n| 1 << n).filter(|bit| random & bit != 0) {
            let changes = ids.windows(2).filter(|pair| (pair[0] ^ pair[1]) & bit != 0).count();
            // Of 256, with a standard deviation of 8.
            assert!((64..192).contains(&changes), "{bit:#x}: {changes}");
        }
    }
}
