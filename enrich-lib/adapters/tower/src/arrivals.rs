//! The source of time and randomness.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{SystemTime, UNIX_EPOCH};

use enrich_lib::model::{Arrival, Timestamp};
use sha2::{Digest, Sha256};

/// Provides the id and the arrival time of each lookup. Simulations have their own implementation.
pub trait Arrivals: Send + Sync {
    /// Returns the arrival of the next lookup.
    fn arrive(&self) -> Arrival;
}

/// The system clock and unpredictable randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemArrivals;

impl SystemArrivals {
    /// Returns the time of the system clock.
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    pub fn now() -> Timestamp {
        // A time before 1970 means that the clock was never set.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_unix_ms(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Arrivals for SystemArrivals {
    fn arrive(&self) -> Arrival {
        thread_local! {
            static TAILS: RefCell<Tails> = RefCell::new(Tails::seeded());
        }
        Arrival::new(Self::now(), TAILS.with_borrow_mut(Tails::next))
    }
}

const TAIL_BYTES: usize = 10;
const TAILS_PER_BLOCK: usize = 3;

/// A per-thread generator of the random parts of lookup ids: SHA-256 of a secret seed and a counter. Its output reveals
/// neither the seed nor other output.
struct Tails {
    seed: [u8; 32],
    blocks: u64,
    block: [u8; 32],
    taken: usize,
}

impl Tails {
    /// Creates a generator with a seed from the operating system: 128 bits, which the standard library reads once per thread
    /// from "a high quality, secure source of randomness provided by the host" (`HashMap`'s documentation). Reading more
    /// would need a dependency that gateways do not have.
    fn seeded() -> Self {
        let system = RandomState::new();
        let mut seed = Sha256::new();
        for nth in 0_u8..4 {
            seed.update(system.hash_one(nth).to_be_bytes());
        }
        Self { seed: seed.finalize().into(), blocks: 0, block: [0; 32], taken: TAILS_PER_BLOCK }
    }

    fn next(&mut self) -> [u8; TAIL_BYTES] {
        if self.taken == TAILS_PER_BLOCK {
            self.block = Sha256::new()
                .chain_update(self.seed)
                .chain_update(self.blocks.to_be_bytes())
                .finalize()
                .into();
            (self.blocks, self.taken) = (self.blocks + 1, 0);
        }
        let mut tail = [0; TAIL_BYTES];
        tail.copy_from_slice(&self.block[self.taken * TAIL_BYTES..][..TAIL_BYTES]);
        self.taken += 1;
        tail
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_tail_is_given_twice_on_any_thread() {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    let mut tails = Tails::seeded();
                    (0..10_000).map(|_| tails.next()).collect::<Vec<_>>()
                })
            })
            .collect();
        let tails: HashSet<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(tails.len(), 40_000);
    }

    #[test]
    fn each_bit_of_a_tail_is_a_coin() {
        const TAILS: usize = 10_000;
        let mut tails = Tails::seeded();
        let mut ones = [0_usize; 8 * TAIL_BYTES];
        for tail in std::iter::repeat_with(|| tails.next()).take(TAILS) {
            for (bit, ones) in ones.iter_mut().enumerate() {
                *ones += usize::from(tail[bit / 8] >> (bit % 8) & 1);
            }
        }
        // Ten standard deviations from the mean.
        assert!(ones.iter().all(|ones| (4_500..5_500).contains(ones)), "{ones:?}");
    }
}
