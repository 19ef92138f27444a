//! Refusals by the burst limit.

use std::collections::{BTreeMap, BTreeSet};

use enrich_lib::model::LookupId;

use crate::event::{Event, PortCall, PortResult};
use crate::trace::Entry;

/// Returns the lookups that were refused in a window in which fewer requests than the limit can have been
/// counted.
///
/// A count without a reply may have been counted in any window. Fails if a count is of more requests than that.
pub(super) fn unjust_refusals(entries: &[Entry]) -> Result<BTreeSet<LookupId>, String> {
    let (mut calling, mut counted) = (BTreeSet::new(), BTreeMap::<_, u64>::new());
    let (mut lost, mut unjust) = (0, BTreeSet::new());
    for entry in entries {
        match &entry.event {
            Event::PortCalled(lookup, PortCall::CountRequest) => drop(calling.insert(*lookup)),
            Event::PortReturned(lookup, PortResult::Counted { count, closes_at, limit, is_test, .. }) => {
                calling.remove(lookup);
                let counted = counted.entry((*closes_at, *is_test)).or_default();
                *counted += 1;
                let counted_max = *counted + lost + calling.len() as u64;
                if *count > counted_max {
                    return Err(format!("counts {counted_max} requests at most: {entry}"));
                }
                if *count > u64::from(*limit) && counted_max <= u64::from(*limit) {
                    unjust.insert(*lookup);
                }
            }
            Event::PortReturned(lookup, PortResult::Failed) => lost += u64::from(calling.remove(lookup)),
            _ => {}
        }
    }
    Ok(unjust)
}
