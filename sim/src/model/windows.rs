//! Refusals by the burst limit.

use std::collections::{BTreeMap, BTreeSet};

use enrich_lib::model::LookupId;

use crate::event::{Event, PortCall, PortResult};
use crate::trace::Entry;

/// Returns the lookups that were refused in a window in which fewer requests than the limit can have been
/// counted.
///
/// A count without a reply may have been counted in any window.
pub(super) fn unjust_refusals(entries: &[Entry]) -> BTreeSet<LookupId> {
    let (mut calling, mut counted) = (BTreeSet::new(), BTreeMap::<_, u64>::new());
    let (mut lost, mut unjust) = (0, BTreeSet::new());
    for Entry { event, .. } in entries {
        match event {
            Event::PortCalled(lookup, PortCall::CountRequest) => drop(calling.insert(*lookup)),
            Event::PortReturned(lookup, PortResult::Counted { count, closes_at, limit, .. }) => {
                calling.remove(lookup);
                let counted = counted.entry(*closes_at).or_default();
                *counted += 1;
                let counted_max = *counted + lost + calling.len() as u64;
                if *count > u64::from(*limit) && counted_max <= u64::from(*limit) {
                    unjust.insert(*lookup);
                }
            }
            Event::PortReturned(lookup, PortResult::Failed) => lost += u64::from(calling.remove(lookup)),
            _ => {}
        }
    }
    unjust
}
