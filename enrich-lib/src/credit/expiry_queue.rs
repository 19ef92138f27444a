//! A deadline queue of lookups, for input that is nearly sorted.
//!
//! A `BTreeSet` of deadlines and a `BTreeMap` of entries cost 13 % of a lookup's instructions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::model::LookupId;

/// A deadline queue of lookups.
///
/// Most entries are appended to a sorted deque, because holds last equally long. An entry that is out of order, for example
/// from a service with a shorter time to live, goes into a heap. No insertion moves other entries.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpiryQueue {
    in_order: VecDeque<Due>,
    late: BinaryHeap<Reverse<Due>>,
}

/// A deadline in milliseconds on the account's clock, and a lookup.
type Due = (u64, LookupId);

impl ExpiryQueue {
    pub(super) fn push(&mut self, due_ms: u64, id: LookupId) {
        if self.in_order.back().is_none_or(|(last, _)| *last <= due_ms) {
            self.in_order.push_back((due_ms, id));
        } else {
            self.late.push(Reverse((due_ms, id)));
        }
    }

    /// Returns the earliest deadline.
    pub(super) fn next_due(&self) -> Option<u64> {
        let in_order = self.in_order.front().map(|(due, _)| *due);
        let late = self.late.peek().map(|Reverse((due, _))| *due);
        in_order.into_iter().chain(late).min()
    }

    /// Removes an entry whose deadline is not after `now`, and returns it with its deadline.
    pub(super) fn pop_due(&mut self, now_ms: u64) -> Option<Due> {
        if self.in_order.front().is_some_and(|(due, _)| *due <= now_ms) {
            return self.in_order.pop_front();
        }
        if self.late.peek().is_some_and(|Reverse((due, _))| *due <= now_ms) {
            return self.late.pop().map(|Reverse(due)| due);
        }
        None
    }

    /// Releases memory if less than an eighth of it is in use.
    pub(super) fn shrink(&mut self) {
        if self.in_order.len() < self.in_order.capacity() / 8 {
            self.in_order.shrink_to(2 * self.in_order.len());
        }
        if self.late.len() < self.late.capacity() / 8 {
            self.late.shrink_to(2 * self.late.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(n: usize) -> LookupId {
        LookupId::from_bytes((n as u128).to_be_bytes())
    }

    fn pop_all_due(queue: &mut ExpiryQueue, now_ms: u64) -> Vec<Due> {
        let mut due: Vec<_> = std::iter::from_fn(|| queue.pop_due(now_ms)).collect();
        due.sort_unstable();
        due
    }

    #[test]
    fn late_entries_move_no_others() {
        let mut queue = ExpiryQueue::default();
        (0..1_000).for_each(|n| queue.push(1_000 + n, id(n as usize)));
        (0..1_000).for_each(|n| queue.push(500 + n, id(n as usize)));
        assert_eq!(queue.late.len(), 1_000);
        assert_eq!(queue.next_due(), Some(500));
    }

    #[test]
    fn entries_with_one_deadline_are_in_order() {
        let mut queue = ExpiryQueue::default();
        (0..100).for_each(|n| queue.push(1_000, id(n)));
        queue.push(2_000, id(100));
        assert!(queue.late.is_empty());
    }

    #[test]
    fn releases_memory_when_less_than_an_eighth_is_in_use() {
        let mut queue = ExpiryQueue::default();
        (0..1_000).for_each(|n| queue.push(10_000, id(n)));
        (0..1_000).for_each(|n| queue.push(5_000, id(n)));
        let capacities = |queue: &ExpiryQueue| [queue.in_order.capacity(), queue.late.capacity()];
        let used = capacities(&queue).map(|capacity| capacity / 8);

        while queue.late.len() > used[1] {
            queue.pop_due(5_000);
        }
        while queue.in_order.len() > used[0] {
            queue.in_order.pop_front();
        }
        let before = capacities(&queue);
        queue.shrink();
        assert_eq!(capacities(&queue), before);

        queue.in_order.pop_front();
        queue.late.pop();
        queue.shrink();
        assert_eq!(capacities(&queue), used.map(|used| 2 * (used - 1)));
    }

    proptest! {
        /// Each step advances the clock, adds a deadline that may be out of order, and may pop all due entries.
        #[test]
        fn pops_every_entry_once_at_its_deadline(
            steps in prop::collection::vec((0..3_u64, 0..200_u64, any::<bool>()), 1..400),
        ) {
            let (mut queue, mut model, mut now) = (ExpiryQueue::default(), Vec::new(), 1_000);
            for (n, (forward, behind, pops)) in steps.into_iter().enumerate() {
                now += forward;
                queue.push(now + 300 - behind, id(n));
                model.push((now + 300 - behind, id(n)));
                if pops {
                    let mut due: Vec<_> = model.extract_if(.., |(due, _)| *due <= now).collect();
                    due.sort_unstable();
                    prop_assert_eq!(pop_all_due(&mut queue, now), due);
                }
                prop_assert_eq!(queue.next_due(), model.iter().map(|(due, _)| *due).min());
            }
            model.sort_unstable();
            prop_assert_eq!(pop_all_due(&mut queue, u64::MAX), model);
            prop_assert_eq!(queue.next_due(), None);
        }
    }
}
