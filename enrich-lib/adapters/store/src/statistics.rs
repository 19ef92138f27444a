//! Statistics of a ledger, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::histogram::{DurationHistogram, Histogram, HistogramSnapshot};

/// Statistics of a ledger at one time.
#[derive(Clone, Debug, Default)]
pub struct LedgerStatistics {
    /// The held credits of all workspaces on this node.
    pub credits_held: u64,
    /// The number of spends that wait for a commit.
    pub queue_depth: u64,
    /// The commits of spends.
    pub commits: Commits,
}

/// The commits of spends since the ledger was opened.
#[derive(Clone, Debug, Default)]
pub struct Commits {
    /// The number of spends of each commit that succeeded.
    pub sizes: HistogramSnapshot,
    /// The duration of each commit, in nanoseconds.
    pub durations: HistogramSnapshot,
    /// The number of commits that failed, without those of a spend that the store rejected.
    pub failed: u64,
}

/// Counts the commits of a writer.
#[derive(Debug, Default)]
pub struct CommitCounter {
    /// Up to 512 spends.
    sizes: Histogram<1, 11>,
    durations: DurationHistogram,
    failed: AtomicU64,
}

impl CommitCounter {
    /// Counts a commit that succeeded, with its number of spends.
    pub fn record(&self, spends: usize) {
        self.sizes.record(spends as u64);
    }

    /// Counts a commit that failed.
    pub fn record_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the duration of a commit.
    pub fn record_duration(&self, duration: Duration) {
        self.durations.record_duration(duration);
    }

    /// Returns the counts.
    pub fn snapshot(&self) -> Commits {
        Commits {
            sizes: self.sizes.snapshot(),
            durations: self.durations.snapshot(),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }
}
