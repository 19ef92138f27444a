//! The lookups whose holds have ended, until they are forgotten.

use std::collections::VecDeque;

use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::model::LookupId;

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// This number of credits was spent.
    Spent(u64),
    /// It was released, has expired, or was spent without success.
    Unspent,
}

/// The lookups whose holds have ended.
///
/// There may be millions of them, and almost none is ever searched again. They are grouped by arrival, outcome and the time at
/// which they are forgotten, so that a lookup takes the 16 bytes of its id, and a group is forgotten as a whole. A new
/// lookup, which must not be found, is compared only with those that arrived at about the same time.
#[derive(Clone, Debug, Default)]
pub(super) struct EndedLookups(VecDeque<Arrivals>);

/// The lookups that arrived in one interval of [`number_of`].
#[derive(Clone, Debug)]
struct Arrivals {
    number: u64,
    groups: Vec<Group>,
}

#[derive(Clone, Debug)]
struct Group {
    forgotten_at_ms: u64,
    outcome: Outcome,
    ids: FxHashSet<LookupId>,
}

/// Returns the number of the interval in which a lookup arrived. An interval is 256 ms long, so that the ids of a fast one fit
/// into a processor's cache.
fn number_of(id: LookupId) -> u64 {
    id.arrived_at().unix_ms() >> 8
}

impl EndedLookups {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, id: LookupId) -> Option<Outcome> {
        let arrivals = &self.0[self.find(number_of(id)).ok()?];
        arrivals.groups.iter().find(|group| group.ids.contains(&id)).map(|group| group.outcome)
    }

    /// Adds a lookup, to be forgotten at this time or less than a second later.
    pub(super) fn insert(&mut self, id: LookupId, outcome: Outcome, forget_at_ms: u64) {
        let forgotten_at_ms = forget_at_ms.checked_next_multiple_of(1_000).unwrap_or(u64::MAX);
        let number = number_of(id);
        let at = self.find(number).unwrap_or_else(|at| {
            // Most accounts have few lookups, and one group in an interval.
            if self.0.is_empty() {
                self.0.reserve_exact(1);
            }
            self.0.insert(at, Arrivals { number, groups: Vec::with_capacity(1) });
            at
        });
        let is_same =
            |group: &&mut Group| (group.forgotten_at_ms, group.outcome) == (forgotten_at_ms, outcome);
        if let Some(group) = self.0[at].groups.iter_mut().find(is_same) {
            group.ids.insert(id);
            return;
        }
        // A set that grows moves its ids, while the account is locked. So it starts with the size of the last one.
        let last = at.checked_sub(1).and_then(|before| self.0[before].groups.last());
        let size = last.map_or(1, |group| group.ids.len());
        let mut ids = FxHashSet::with_capacity_and_hasher(size, FxBuildHasher);
        ids.insert(id);
        self.0[at].groups.push(Group { forgotten_at_ms, outcome, ids });
    }

    /// Returns the earliest time at which a lookup is forgotten.
    pub(super) fn next_forgotten_at_ms(&self) -> Option<u64> {
        self.0.iter().flat_map(|arrivals| &arrivals.groups).map(|group| group.forgotten_at_ms).min()
    }

    /// Forgets all lookups that are due at `now_ms`.
    pub(super) fn forget_due(&mut self, now_ms: u64) {
        self.0.retain_mut(|arrivals| {
            arrivals.groups.retain(|group| group.forgotten_at_ms > now_ms);
            !arrivals.groups.is_empty()
        });
    }

    /// Returns the index of the interval's arrivals, or the index at which to insert them.
    fn find(&self, number: u64) -> Result<usize, usize> {
        match self.0.back() {
            Some(last) if last.number == number => Ok(self.0.len() - 1),
            _ => self.0.binary_search_by_key(&number, |arrivals| arrivals.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::model::Timestamp;

    fn id(ms: u64, n: u8) -> LookupId {
        LookupId::new(Timestamp::from_unix_ms(ms), [n; 10])
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![Just(Outcome::Unspent), (1..3_u64).prop_map(Outcome::Spent)]
    }

    proptest! {
        #[test]
        fn remembers_each_lookup_until_it_is_due(
            steps in prop::collection::vec((0..2_000_u64, 0..4_u8, outcome(), 0..5_u64, any::<bool>()), 1..300),
        ) {
            let (mut ended, mut model) = (EndedLookups::default(), BTreeMap::new());
            for (second, (arrival_ms, n, outcome, life, advances)) in steps.into_iter().enumerate() {
                let now_ms = second as u64 * 1_000;
                let id = id(arrival_ms, n);
                if advances {
                    ended.forget_due(now_ms);
                    model.retain(|_, (_, due)| *due > now_ms);
                }
                if let (None, entry) = (ended.get(id), model.entry(id)) {
                    ended.insert(id, outcome, now_ms + life * 1_000);
                    entry.or_insert((outcome, now_ms + life * 1_000));
                }
                prop_assert_eq!(ended.get(id), model.get(&id).map(|(outcome, _)| *outcome));
                prop_assert_eq!(ended.next_forgotten_at_ms(), model.values().map(|(_, due)| *due).min());
                prop_assert_eq!(ended.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn forgets_less_than_a_second_late() {
        let mut ended = EndedLookups::default();
        ended.insert(id(0, 0), Outcome::Unspent, 1_001);
        ended.forget_due(1_999);
        assert!(ended.get(id(0, 0)).is_some());
        ended.forget_due(2_000);
        assert!(ended.is_empty());
        ended.insert(id(0, 0), Outcome::Unspent, u64::MAX);
        assert_eq!(ended.next_forgotten_at_ms(), Some(u64::MAX));
    }

    #[test]
    fn a_million_lookups_take_few_groups() {
        let mut ended = EndedLookups::default();
        for n in 0..1_000_000_u64 {
            let id = LookupId::new(
                Timestamp::from_unix_ms(n / 100),
                n.to_be_bytes().repeat(2)[..10].try_into().unwrap(),
            );
            ended.insert(id, Outcome::Spent(1), n / 100);
        }
        assert!(ended.0.len() <= 41, "10 seconds in intervals of 256 ms");
        assert!(ended.0.iter().all(|arrivals| arrivals.groups.len() <= 2));
    }
}
