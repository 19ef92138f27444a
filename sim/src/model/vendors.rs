//! How many lookups of a node call vendors at once, and when vendors have answered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_lib::model::LookupId;

use crate::event::{Event, PortCall, PortResult};
use crate::lookup_history::LookupHistory;
use crate::trace::Entry;

#[derive(Debug, Default)]
pub(super) struct Vendors {
    /// Whether they have limits.
    pub(super) have_limits: bool,
    /// The lookups during which others of their node called the resolver, and the most of them at once, itself
    /// included.
    pub(super) concurrent: BTreeMap<LookupId, usize>,
    /// The nodes whose lookups received an answer of a vendor, and when.
    answered: Vec<(usize, Duration)>,
}

impl Vendors {
    pub(super) fn of(entries: &[Entry], histories: &BTreeMap<LookupId, LookupHistory>) -> Self {
        let node_of = |lookup: &LookupId| histories.get(lookup).map(|history| history.node);
        let email_of = |lookup: &LookupId| histories.get(lookup).and_then(|history| history.email.as_ref());
        let (mut vendors, mut resolving) = (Self::default(), BTreeSet::new());
        let mut called = BTreeSet::<LookupId>::new();
        for Entry { at, event } in entries {
            match event {
                Event::NodeStarted { has_middleware, .. } => vendors.have_limits |= has_middleware,
                Event::PortCalled(lookup, PortCall::Resolve) => {
                    resolving.insert(*lookup);
                    let with_it: Vec<_> =
                        resolving.iter().filter(|other| node_of(other) == node_of(lookup)).collect();
                    for other in &with_it {
                        let most = vendors.concurrent.entry(**other).or_default();
                        *most = with_it.len().max(*most);
                    }
                }
                Event::VendorCalled(email, None) => {
                    called.extend(resolving.iter().filter(|lookup| email_of(lookup) == Some(email)));
                }
                Event::PortReturned(lookup, result) => {
                    let is_answered = called.remove(lookup) && matches!(result, PortResult::ProfileFound(_));
                    vendors.answered.extend(node_of(lookup).filter(|_| is_answered).map(|node| (node, *at)));
                    resolving.remove(lookup);
                }
                Event::NodeCrashed(node) => resolving.retain(|lookup| node_of(lookup) != Some(*node)),
                _ => {}
            }
        }
        vendors
    }

    /// Returns the number of lookups of `node` that received an answer of a vendor from `from` to `until`.
    pub(super) fn answers(&self, node: usize, from: Duration, until: Duration) -> usize {
        self.answered.iter().filter(|(of, at)| *of == node && (from..=until).contains(at)).count()
    }
}
