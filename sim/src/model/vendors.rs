//! Failures by the limits of vendors.

use std::collections::{BTreeMap, BTreeSet};

use enrich_lib::model::LookupId;

use crate::event::{Event, PortCall};
use crate::lookup_history::LookupHistory;
use crate::trace::Entry;
use crate::vendor::{CONCURRENCY, QUEUE_MAX};

/// Returns the lookups during which so many others of their node called the resolver that a vendor with limits
/// can have refused them.
pub(super) fn crowded(
    entries: &[Entry],
    histories: &BTreeMap<LookupId, LookupHistory>,
) -> BTreeSet<LookupId> {
    let node_of = |lookup: &LookupId| histories.get(lookup).map(|history| history.node);
    let (mut resolving, mut crowded) = (BTreeSet::new(), BTreeSet::new());
    for Entry { event, .. } in entries {
        match event {
            Event::PortCalled(lookup, PortCall::Resolve) => {
                resolving.insert(*lookup);
                let with_it = resolving.iter().filter(|other| node_of(other) == node_of(lookup));
                let with_it: Vec<_> = with_it.copied().collect();
                if with_it.len() > CONCURRENCY + QUEUE_MAX {
                    crowded.extend(with_it);
                }
            }
            Event::PortReturned(lookup, _) => drop(resolving.remove(lookup)),
            Event::NodeCrashed(node) => resolving.retain(|lookup| node_of(lookup) != Some(*node)),
            _ => {}
        }
    }
    crowded
}
