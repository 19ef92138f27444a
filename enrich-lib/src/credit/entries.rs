//! A map from lookups to values.

use std::collections::VecDeque;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::model::LookupId;

/// A map from lookups to values, with one bucket for each second in which lookups arrived.
///
/// A growing map moves all of its entries while the account is locked. A single map would hold millions of entries, those of
/// a minute. Each bucket starts with the size of the previous one. Most accesses are to recent lookups, so that the memory
/// of older buckets is not touched.
#[derive(Clone, Debug)]
pub(super) struct Entries<V>(VecDeque<Bucket<V>>);

#[derive(Clone, Debug)]
struct Bucket<V> {
    number: u64,
    values: FxHashMap<LookupId, V>,
}

/// Returns the number of a lookup's bucket: its arrival time in units of 1,024 ms.
fn number_of(id: LookupId) -> u64 {
    id.arrived_at().unix_ms() >> 10
}

impl<V> Entries<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, id: LookupId) -> Option<&V> {
        self.0[self.find(id).ok()?].values.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: LookupId) -> Option<&mut V> {
        let at = self.find(id).ok()?;
        self.0[at].values.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: LookupId, value: V) {
        let at = self.find(id).unwrap_or_else(|at| {
            let before = at.checked_sub(1).map_or(0, |before| self.0[before].values.len());
            let values = FxHashMap::with_capacity_and_hasher(before, FxBuildHasher);
            self.0.insert(at, Bucket { number: number_of(id), values });
            at
        });
        self.0[at].values.insert(id, value);
    }

    pub(super) fn remove(&mut self, id: LookupId) -> Option<V> {
        let at = self.find(id).ok()?;
        let value = self.0[at].values.remove(&id);
        if self.0[at].values.is_empty() {
            self.0.remove(at);
        }
        value
    }

    /// Returns the index of the lookup's bucket, or the index at which to insert it.
    fn find(&self, id: LookupId) -> Result<usize, usize> {
        let number = number_of(id);
        match self.0.back() {
            Some(last) if last.number == number => Ok(self.0.len() - 1),
            _ => self.0.binary_search_by_key(&number, |bucket| bucket.number),
        }
    }
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::model::Timestamp;

    fn id(second: u64, n: u8) -> LookupId {
        LookupId::new(Timestamp::from_unix_ms(second * 1_000), [n; 10])
    }

    proptest! {
        #[test]
        fn behaves_like_a_map_for_any_order_of_ids(steps in prop::collection::vec((0..40_u64, 0..4_u8, 0..3_u8), 1..300)) {
            let (mut entries, mut model) = (Entries::default(), BTreeMap::new());
            for (nth, (second, n, step)) in steps.into_iter().enumerate() {
                let id = id(second, n);
                match step {
                    0 => {
                        entries.insert(id, nth);
                        model.insert(id, nth);
                    }
                    1 => prop_assert_eq!(entries.remove(id), model.remove(&id)),
                    _ => prop_assert_eq!(entries.get_mut(id).copied(), model.get(&id).copied()),
                }
                prop_assert_eq!(entries.get(id), model.get(&id));
                prop_assert_eq!(entries.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn buckets_hold_the_lookups_of_one_second() {
        let mut entries = Entries::default();
        (0..60).for_each(|second| entries.insert(id(second, 0), ()));
        assert!(entries.0.iter().all(|bucket| bucket.values.len() <= 2));

        let mut entries = Entries::default();
        (0..1_024).for_each(|ms| entries.insert(LookupId::new(Timestamp::from_unix_ms(ms), [0; 10]), ()));
        assert_eq!(entries.0.len(), 1);
    }
}
