//! The spends of leases that others have locked. They are sent again from time to time, one lease after the other.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use tokio::time::Instant;

use crate::spend::Spend;

/// The pause after a lease that is still locked. A statement for a locked lease occupies the writer until it fails.
const PAUSE: Duration = Duration::from_millis(500);

/// The lease of a spend, and whether the spend is late.
type Key = ((i64, i64), bool);

pub(crate) struct Blocked {
    spends: BTreeMap<Key, Vec<Spend>>,
    /// The lease whose spends were sent last.
    last: Key,
    retry_at: Instant,
}

impl Blocked {
    pub(crate) fn new() -> Self {
        Self { spends: BTreeMap::new(), last: ((i64::MIN, i64::MIN), false), retry_at: Instant::now() }
    }

    /// Returns when to call [`Blocked::take_due`], or `None` if there are no spends.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        (!self.spends.is_empty()).then_some(self.retry_at)
    }

    /// Adds spends whose statement could not lock their lease.
    pub(crate) fn add(&mut self, spends: Vec<Spend>) {
        for spend in spends {
            self.spends.entry(key(&spend)).or_default().push(spend);
        }
        self.retry_at = Instant::now() + PAUSE;
    }

    /// Adds a new spend if its lease is blocked, and returns it otherwise.
    pub(crate) fn add_if_blocked(&mut self, spend: Spend) -> Option<Spend> {
        match self.spends.get_mut(&key(&spend)) {
            Some(spends) => {
                spends.push(spend);
                None
            }
            None => Some(spend),
        }
    }

    /// Removes up to `count_max` spends of the lease that is due next.
    pub(crate) fn take_due(&mut self, count_max: usize) -> Vec<Spend> {
        if Instant::now() < self.retry_at {
            return Vec::new();
        }
        let mut next = self.spends.range((Excluded(self.last), Unbounded)).chain(&self.spends);
        let Some((key, mut taken)) =
            next.next().map(|(key, _)| *key).and_then(|key| self.spends.remove_entry(&key))
        else {
            return Vec::new();
        };
        let later = taken.split_off(taken.len().min(count_max));
        if !later.is_empty() {
            self.spends.insert(key, later);
        }
        self.last = key;
        taken
    }

    /// Removes the spends for which `is_removed` returns `true`.
    pub(crate) fn extract_if(&mut self, is_removed: impl Fn(&mut Spend) -> bool) -> Vec<Spend> {
        let extracted =
            self.spends.values_mut().flat_map(|spends| spends.extract_if(.., &is_removed)).collect();
        self.spends.retain(|_, spends| !spends.is_empty());
        extracted
    }
}

fn key(spend: &Spend) -> Key {
    (spend.lease(), spend.is_late)
}
