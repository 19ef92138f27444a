//! The clocks of the nodes: none is quite right, and each goes wrong in its own way.

use std::fmt;
use std::time::Duration;

use enrich_lib::model::Timestamp;
use rand::RngExt;
use rand::rngs::StdRng;

/// How far a node's clock may be from the right time, either way.
pub(crate) const SKEW_MAX: Duration = Duration::from_secs(5);

const SKEW_MAX_MS: i64 = SKEW_MAX.as_millis() as i64;

/// The clock of a node, which goes on through its crashes. The default is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// How far it is ahead when the run begins, in ms; behind, if negative.
    pub ahead_ms: i64,
    /// How much it gains, in ms each 1,000 s; loses, if negative.
    pub drift_ppm: i64,
}

impl Clock {
    pub(crate) fn draw(dice: &mut StdRng) -> Self {
        Self {
            ahead_ms: dice.random_range(-SKEW_MAX_MS..=SKEW_MAX_MS),
            drift_ppm: dice.random_range(-10_000..=10_000),
        }
    }

    /// What it shows now, on the machine on which this runs.
    pub(crate) fn now(self) -> Timestamp {
        self.at(turmoil::sim_elapsed().expect("asked for on a simulated machine"), right_time())
    }

    /// What it shows when a run has lasted so long, and the right time is this.
    pub(crate) fn at(self, elapsed: Duration, right: Timestamp) -> Timestamp {
        let elapsed_ms = ms(elapsed);
        let drift_ms =
            i64::try_from(elapsed_ms).unwrap_or(i64::MAX).saturating_mul(self.drift_ppm) / 1_000_000;
        let ahead_ms = (self.ahead_ms + drift_ms).clamp(-SKEW_MAX_MS, SKEW_MAX_MS);
        Timestamp::from_unix_ms(right.unix_ms().saturating_add_signed(ahead_ms))
    }
}

/// The right time, asked for on a simulated machine.
pub(crate) fn right_time() -> Timestamp {
    timestamp(turmoil::since_epoch().expect("asked for on a simulated machine"))
}

/// This long after 1970.
pub(crate) fn timestamp(since_epoch: Duration) -> Timestamp {
    Timestamp::from_unix_ms(ms(since_epoch))
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("before the year 500,000,000")
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+} ms, {:+} ppm", self.ahead_ms, self.drift_ppm)
    }
}
