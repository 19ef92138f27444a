//! The clocks of a node, and warnings about a clock of this machine that differs from the clock of a server.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use enrich_store::sync::Mutex;
use enrich_store::{ClockSkew, Clocks};
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::machine::Machine;

/// Interval between two comparisons of the clocks.
const INTERVAL: Duration = Duration::from_secs(10);

/// Minimum interval between two warnings about the clock of a server.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// A monotonic clock that does not count the time during which this process was suspended: its lookups did
/// not run either, so that their holds must not expire.
pub(crate) struct SteadyClock {
    machine: Arc<dyn Machine>,
    time: Mutex<SteadyTime>,
}

struct SteadyTime {
    last: Duration,
    elapsed: Duration,
}

impl SteadyClock {
    /// The longest time that can pass between two readings without a suspension.
    const STEP_MAX: Duration = Duration::from_secs(2);

    pub(crate) fn new(machine: Arc<dyn Machine>) -> Self {
        let time = SteadyTime { last: machine.monotonic(), elapsed: Duration::ZERO };
        Self { machine, time: Mutex::new(time) }
    }

    pub(crate) fn read(&self) -> Clocks {
        let mut time = self.time.lock();
        let now = self.machine.monotonic();
        let step = now.saturating_sub(time.last).min(Self::STEP_MAX);
        time.elapsed += step;
        time.last = now;
        Clocks { wall: self.machine.now(), elapsed: time.elapsed }
    }
}

/// Returns the time of a monotonic clock whose origin is the first call.
pub(crate) fn monotonic() -> Duration {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    ORIGIN.elapsed()
}

/// Compares the clocks until it is cancelled. `compare` returns `None` if there is only one clock.
///
/// Ignores a comparison that fails: requests report an unavailable server.
pub(crate) async fn watch<E>(server: &str, compare: impl AsyncFn() -> Result<Option<ClockSkew>, E>) {
    let mut warnings = Warnings::default();
    loop {
        if let Ok(Some(skew)) = compare().await
            && warnings.is_due(skew)
        {
            warn!("the clock of this machine is {skew} of the clock of {server}; synchronize both clocks");
        }
        sleep(INTERVAL).await;
    }
}

/// The time of the last warning.
#[derive(Default)]
struct Warnings(Option<Instant>);

impl Warnings {
    /// Returns whether to warn about `skew` now.
    fn is_due(&mut self, skew: ClockSkew) -> bool {
        let is_due = skew.size() >= ClockSkew::ERROR_MAX
            && self.0.is_none_or(|warned_at| warned_at.elapsed() >= WARNING_INTERVAL);
        if is_due {
            self.0 = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use enrich_lib::model::Timestamp;
    use enrich_sqlite::Work;

    use super::*;
    use crate::machine::Task;

    /// A machine whose monotonic clock the test sets, in milliseconds.
    #[derive(Default)]
    struct Clock(AtomicU64);

    impl Machine for Clock {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn random(&self) -> [u8; 32] {
            [0; 32]
        }

        fn run_writer(&self, _: Work) {}

        fn spawn(&self, _: &'static str, _: Task) {}
    }

    #[test]
    fn suspension_of_an_hour_counts_2_s_once() {
        let machine = Arc::new(Clock::default());
        let clock = SteadyClock::new(machine.clone());
        let mut elapsed_after = |ms| {
            machine.0.fetch_add(ms, Ordering::Relaxed);
            clock.read().elapsed.as_millis()
        };
        let steps = [250, 250, 3_600_000, 250, 2_000, 2_001, 250].map(&mut elapsed_after);
        assert_eq!(steps, [250, 500, 2_500, 2_750, 4_750, 6_750, 7_000]);
    }

    /// Returns the number of warnings in an hour in which the clock is ahead by `ahead_ms`.
    async fn warnings_of_an_hour(ahead_ms: u64) -> usize {
        let [server, node] = [0, ahead_ms].map(Timestamp::from_unix_ms);
        let (skew, mut warnings, mut due) =
            (ClockSkew::from_reply(node, server, node), Warnings::default(), 0);
        for _ in 0..360 {
            due += usize::from(warnings.is_due(skew));
            tokio::time::advance(INTERVAL).await;
        }
        due
    }

    #[tokio::test(start_paused = true)]
    async fn warns_once_a_minute_from_5_s() {
        assert_eq!(warnings_of_an_hour(4_999).await, 0);
        assert_eq!(warnings_of_an_hour(5_000).await, 60);
    }
}
