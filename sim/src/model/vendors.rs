//! How many lookups of a node call vendors at once.

use std::collections::{BTreeMap, BTreeSet};

use enrich_lib::model::LookupId;

use crate::event::{Event, PortCall};
use crate::lookup_history::LookupHistory;
use crate::trace::Entry;

/// Returns the lookups during which others of their node called the resolver, and the most of them at once, itself
/// included.
pub(super) fn concurrent(
    entries: &[Entry],
    histories: &BTreeMap<LookupId, LookupHistory>,
) -> BTreeMap<LookupId, usize> {
    let node_of = |lookup: &LookupId| histories.get(lookup).map(|history| history.node);
    let (mut resolving, mut concurrent) = (BTreeSet::new(), BTreeMap::new());
    for Entry { event, .. } in entries {
        match event {
            Event::PortCalled(lookup, PortCall::Resolve) => {
                resolving.insert(*lookup);
                let with_it: Vec<_> =
                    resolving.iter().filter(|other| node_of(other) == node_of(lookup)).collect();
                for other in &with_it {
                    let most = concurrent.entry(**other).or_default();
                    *most = with_it.len().max(*most);
                }
            }
            Event::PortReturned(lookup, _) => drop(resolving.remove(lookup)),
            Event::NodeCrashed(node) => resolving.retain(|lookup| node_of(lookup) != Some(*node)),
            _ => {}
        }
    }
    concurrent
}
