//! The clocks of a node.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use enrich_store::Clocks;
use enrich_store::sync::Mutex;
use tokio::time::Instant;

use crate::machine::Machine;

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
}
