//! Counts of values by size, for metrics.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts values by powers of two. The upper bounds of its `BUCKETS` buckets are `FIRST`, 2 × `FIRST`, 4 ×
/// `FIRST` and so on; the last bucket has no bound.
///
/// The bucket of a value follows from its logarithm, which takes fewer instructions than a search.
#[derive(Debug)]
pub struct Histogram<const FIRST: u64, const BUCKETS: usize> {
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

/// A histogram of durations in nanoseconds, from 100 µs to 26 s.
pub type DurationHistogram = Histogram<100_000, 20>;

/// The values of a [`Histogram`] at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// The upper bound and the count of each bucket. The last bucket has no bound.
    pub buckets: Vec<(Option<u64>, u64)>,
    /// The sum of all values.
    pub sum: u64,
}

impl<const FIRST: u64, const BUCKETS: usize> Default for Histogram<FIRST, BUCKETS> {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const FIRST: u64, const BUCKETS: usize> Histogram<FIRST, BUCKETS> {
    /// Counts a value.
    pub fn record(&self, value: u64) {
        let multiple = value.saturating_sub(1) / FIRST;
        // The number of bits of `multiple`, in fewer instructions.
        let exponent = ((multiple << 1) | 1).ilog2();
        self.counts[(exponent as usize).min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts a duration in nanoseconds.
    pub fn record_duration(&self, duration: Duration) {
        // A u64 holds 584 years.
        self.record(duration.as_nanos() as u64);
    }

    /// Returns the counts. Values that are recorded meanwhile may be missing in a part of them.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let bound = |index| (index + 1 < BUCKETS).then(|| FIRST << index);
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets = counts.enumerate().map(|(index, count)| (bound(index), count)).collect();
        HistogramSnapshot { buckets, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl HistogramSnapshot {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Adds the values of a histogram with the same bounds.
    pub fn add(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else {
            self.buckets.iter_mut().zip(&other.buckets).for_each(|((_, sum), (_, count))| *sum += count);
        }
        self.sum += other.sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_the_last_bucket_has_none() {
        let histogram = Histogram::<100, 4>::default();
        [0, 1, 100, 101, 200, 201, 400, 401, 10_000].into_iter().for_each(|value| histogram.record(value));
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.buckets, [(Some(100), 3), (Some(200), 2), (Some(400), 2), (None, 2)]);
        assert_eq!((snapshot.count(), snapshot.sum), (9, 11_404));
    }

    #[test]
    fn sums_are_those_of_all_histograms() {
        let [a, b] = [Histogram::<1, 3>::default(), Histogram::default()];
        a.record(1);
        b.record(2);
        let mut sum = HistogramSnapshot::default();
        sum.add(&a.snapshot());
        sum.add(&b.snapshot());
        assert_eq!(sum, HistogramSnapshot { buckets: vec![(Some(1), 1), (Some(2), 1), (None, 0)], sum: 3 });
    }
}
