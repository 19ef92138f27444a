//! Limits the log volume that clients can cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// Counts events of one kind. The first of each interval is logged, and one line at the end of the interval
/// counts the others.
#[derive(Debug, Default)]
pub struct Sampler {
    /// Number of events in the current interval; 0 between intervals.
    count: AtomicU64,
}

impl Sampler {
    /// The length of an interval.
    pub const INTERVAL: Duration = Duration::from_secs(5);

    /// Counts an event. Returns `true` for the first one, which starts an interval. `report` receives the
    /// number of the others at its end, unless there are none.
    pub fn admits(self: &Arc<Self>, report: impl FnOnce(u64) + Send + 'static) -> bool {
        if self.count.fetch_add(1, Ordering::Relaxed) > 0 {
            return false;
        }
        let sampler = self.clone();
        tokio::spawn(async move {
            sleep(Self::INTERVAL).await;
            sampler.flush(report);
        });
        true
    }

    /// Ends the interval.
    pub fn flush(&self, report: impl FnOnce(u64)) {
        let count = self.count.swap(0, Ordering::Relaxed).saturating_sub(1);
        if count > 0 {
            report(count);
        }
    }
}
