//! Usage of a workspace by day, key and outcome.

use std::mem;

use enrich_lib::key::KeyId;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::observe::LookupEvent;
use rustc_hash::FxHashMap;

use crate::sync::Mutex;

/// A day in UTC, as the number of days since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

impl Day {
    const MS: u64 = 86_400_000;

    /// Returns the day of a time.
    pub fn from_timestamp(time: Timestamp) -> Self {
        Self(u32::try_from(time.unix_ms() / Self::MS).unwrap_or(u32::MAX))
    }

    /// Creates a day from the number that [`Day::number`] returned.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of days since the Unix epoch.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the first moment of the day.
    pub const fn starts_at(self) -> Timestamp {
        Timestamp::from_unix_ms(self.0 as u64 * Self::MS)
    }

    /// Returns the smallest id of a lookup that arrives on this day or later.
    pub const fn first_lookup(self) -> LookupId {
        LookupId::new(self.starts_at(), [0; 10])
    }

    /// Returns the next day.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the day `count` days earlier, at the earliest the Unix epoch.
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self(self.0.saturating_sub(count))
    }
}

/// The outcome of billed lookups in [`UsageRow::outcome`].
pub const BILLED: &str = "billed";

/// The outcome of lookups with test keys in [`UsageRow::outcome`].
pub const TEST: &str = "test";

/// The number of days that [`crate::records::KeyRow::uses`] covers, including the current one.
pub const USES_DAYS: u32 = 30;

/// The lookups with one key and one outcome on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The day.
    pub day: Day,
    /// The key of the requests.
    pub key: KeyId,
    /// [`BILLED`], or the outcome of lookups that were free: `not_found`, `rate_limited` and so on.
    pub outcome: String,
    /// The number of lookups. Exact for billed lookups. A crash may lose the other lookups of the last
    /// second.
    pub lookups: u64,
    /// The credits spent.
    pub credits: u64,
}

/// A number of free lookups to add to the usage of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageCount {
    /// The day on which the lookups arrived.
    pub day: Day,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// The key of the requests.
    pub key: KeyId,
    /// The outcome.
    pub outcome: &'static str,
    /// The number of lookups.
    pub lookups: u64,
}

/// The workspace, the key, the outcome and the day of lookups.
type Counted = (WorkspaceId, KeyId, &'static str, Day);

/// Counts free lookups in memory. A store writes the counts each second.
///
/// Billed lookups are not counted here, because the store counts their spends.
#[derive(Debug, Default)]
pub struct UsageCounter {
    counts: Mutex<FxHashMap<Counted, u64>>,
}

impl UsageCounter {
    /// Counts the lookup if it was free and its key was valid.
    pub fn record(&self, event: &LookupEvent<'_>) {
        if event.credits_spent > 0 {
            return;
        }
        if let (Some(workspace), Some(key)) = (event.workspace, event.key) {
            let day = Day::from_timestamp(event.lookup_id.arrived_at());
            let counted = (workspace.clone(), key, event.ending.outcome(), day);
            *self.counts.lock().entry(counted).or_default() += 1;
        }
    }

    /// Returns the counts since the last call, sorted.
    pub fn take(&self) -> Vec<UsageCount> {
        let counts = mem::take(&mut *self.counts.lock());
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable();
        let count =
            |((workspace, key, outcome, day), lookups)| UsageCount { day, workspace, key, outcome, lookups };
        counts.into_iter().map(count).collect()
    }

    /// Adds counts that could not be written.
    pub fn put_back(&self, counts: Vec<UsageCount>) {
        let mut current = self.counts.lock();
        for UsageCount { day, workspace, key, outcome, lookups } in counts {
            *current.entry((workspace, key, outcome, day)).or_default() += lookups;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_are_put_back_are_added_to_later_ones() {
        let (counter, key) = (UsageCounter::default(), KeyId::from_number(1));
        let (day, workspace) = (Day::default(), "demo".parse().unwrap());
        let count = UsageCount { day, workspace, key, outcome: "not_found", lookups: 2 };
        counter.put_back(vec![count.clone()]);
        counter.put_back(vec![count]);
        assert_eq!(counter.take()[0].lookups, 4);
    }
}
