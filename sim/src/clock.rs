//! Skewed and drifting clocks of machines, and random durations.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use enrich_lib::model::Timestamp;
use enrich_store::Clocks;
use rand::RngExt;
use rand::rngs::StdRng;

/// The maximum difference between a clock and the correct time, in either direction.
pub(crate) const SKEW_MAX: Duration = Duration::from_secs(5);

const SKEW_MAX_MS: i64 = SKEW_MAX.as_millis() as i64;

/// The clock of a machine. It keeps running while the machine is down. The default clock is correct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Offset at the start of the run, in milliseconds. Negative if the clock is behind.
    pub ahead_ms: i64,
    /// Drift in milliseconds per 1,000 s. Negative if the clock runs slow.
    pub drift_ppm: i64,
}

impl Clock {
    pub(crate) fn draw(rng: &mut StdRng) -> Self {
        Self {
            ahead_ms: rng.random_range(-SKEW_MAX_MS..=SKEW_MAX_MS),
            drift_ppm: rng.random_range(-10_000..=10_000),
        }
    }

    /// Returns the clock's current time. Panics outside of a simulated machine.
    pub fn now(self) -> Timestamp {
        self.at(turmoil::sim_elapsed().expect("called on a simulated machine"), correct_time())
    }

    /// Returns the clock's time, given the time since the start of the run and the correct time.
    pub(crate) fn at(self, elapsed: Duration, correct: Timestamp) -> Timestamp {
        let elapsed_ms = whole_ms(elapsed);
        let drift_ms =
            i64::try_from(elapsed_ms).unwrap_or(i64::MAX).saturating_mul(self.drift_ppm) / 1_000_000;
        let ahead_ms = (self.ahead_ms + drift_ms).clamp(-SKEW_MAX_MS, SKEW_MAX_MS);
        Timestamp::from_unix_ms(correct.unix_ms().saturating_add_signed(ahead_ms))
    }
}

/// The clock of a node, which a fault may set wrong.
#[derive(Clone, Debug)]
pub(crate) struct NodeClock {
    clock: Clock,
    ahead_ms: Arc<AtomicI64>,
}

impl NodeClock {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, ahead_ms: Arc::default() }
    }

    /// Sets the clock ahead by this many milliseconds, in addition to its own error.
    pub(crate) fn set_ahead(&self, ms: i64) {
        self.ahead_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the clock's current time. Panics outside of a simulated machine.
    pub(crate) fn now(&self) -> Timestamp {
        let ahead_ms = self.ahead_ms.load(Ordering::Relaxed);
        Timestamp::from_unix_ms(self.clock.now().unix_ms().saturating_add_signed(ahead_ms))
    }

    /// Returns both clocks of the machine. Its monotonic clock is correct. Panics outside of a simulated
    /// machine.
    pub(crate) fn read(&self) -> Clocks {
        let elapsed = turmoil::sim_elapsed().expect("called on a simulated machine");
        Clocks { wall: self.now(), elapsed }
    }
}

/// Returns the correct time. Panics outside of a simulated machine.
pub(crate) fn correct_time() -> Timestamp {
    timestamp(turmoil::since_epoch().expect("called on a simulated machine"))
}

/// Converts a duration since the Unix epoch to a timestamp.
pub(crate) fn timestamp(since_epoch: Duration) -> Timestamp {
    Timestamp::from_unix_ms(whole_ms(since_epoch))
}

/// Draws a duration from this range of milliseconds.
pub(crate) fn random_ms(rng: &mut StdRng, range: Range<u64>) -> Duration {
    Duration::from_millis(rng.random_range(range))
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("before the year 500,000,000")
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+} ms, {:+} ppm", self.ahead_ms, self.drift_ppm)
    }
}
