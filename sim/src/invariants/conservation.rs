//! Invariant 1.

use std::collections::BTreeMap;

use enrich_lib::credit::{Balance, HoldOutcome, Settlement};
use enrich_lib::model::{LookupId, WorkspaceId};

use super::ensure::ensure;
use crate::event::{Event, PortCall, PortResult};
use crate::model::Grants;
use crate::trace::Entry;

/// Checks each balance against the port calls: `granted = available + held + spent`, and `held` and `spent`
/// are the sums of the lookups that hold and have spent credits. A call that has not returned may or may not
/// have had its effect, and so may the spend of a lookup whose node crashed.
///
/// At the end, the rows of the database are exactly the spends, and its own check finds no error.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let (mut grants, mut lookups) = (Grants::default(), BTreeMap::<LookupId, Lookup>::new());
    for entry in entries {
        grants.add(entry);
        match &entry.event {
            // The holds of a node alone are in its memory.
            Event::NodeStarted { is_alone: true, .. } => lookups.values_mut().for_each(Lookup::restart),
            Event::HoldRequested(lookup, workspace, credits, receipt) => {
                let (workspace, credits) = (workspace.clone(), *credits);
                let may_be_free = receipt.is_some();
                lookups.insert(*lookup, Lookup { workspace, credits, may_be_free, state: State::Holding });
            }
            Event::PortCalled(lookup, PortCall::Settle(settlement)) => {
                set(&mut lookups, lookup, State::Settling(*settlement));
            }
            Event::PortReturned(lookup, PortResult::Hold(HoldOutcome::Granted)) => {
                set(&mut lookups, lookup, State::Held);
            }
            Event::PortReturned(lookup, PortResult::Hold(_)) => set(&mut lookups, lookup, State::Free),
            Event::PortReturned(lookup, result @ (PortResult::Settled(_) | PortResult::Failed)) => {
                if let Some(lookup) = lookups.get_mut(lookup) {
                    lookup.end_call(*result);
                }
            }
            Event::Balance(workspace, actual) => {
                let expected = Bounds::of(workspace, lookups.values());
                let is_granted = grants.may_be(workspace, actual.granted, entry.at);
                ensure(is_granted && expected.allow(*actual), || format!("{entry}, expected {expected:?}"))?;
            }
            Event::CommittedSpends(committed) => {
                for (id, lookup) in &lookups {
                    let is_committed = committed.contains_key(id);
                    let is_expected = match lookup.state {
                        State::Spent => is_committed,
                        // Its node crashed.
                        State::Unknown | State::Settling(Settlement::Spend(_)) => true,
                        _ => !is_committed,
                    };
                    ensure(is_expected, || format!("{id} is {lookup:?}, with a spend: {is_committed}"))?;
                }
                let unknown = committed.keys().find(|id| !lookups.contains_key(id));
                ensure(unknown.is_none(), || format!("a spend without a hold: {unknown:?}"))?;
            }
            Event::DatabaseChecked(errors) => ensure(errors.is_empty(), || entry.to_string())?,
            _ => {}
        }
    }
    Ok(())
}

fn set(lookups: &mut BTreeMap<LookupId, Lookup>, id: &LookupId, state: State) {
    if let Some(lookup) = lookups.get_mut(id) {
        lookup.state = state;
    }
}

/// A lookup with its credits.
#[derive(Debug)]
struct Lookup {
    workspace: WorkspaceId,
    credits: u64,
    /// Whether its hold takes no credits if its receipt is spent.
    may_be_free: bool,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Holding,
    Held,
    Settling(Settlement),
    Spent,
    /// Nothing is held or spent.
    Free,
    /// The node crashed during the spend.
    Unknown,
}

impl Lookup {
    /// Ends the call in progress, if it is one of the ledger.
    fn end_call(&mut self, result: PortResult) {
        self.state = match self.state {
            State::Settling(Settlement::Spend(credits)) if result == PortResult::Settled(None) => {
                self.credits = credits;
                State::Spent
            }
            State::Holding | State::Settling(_) => State::Free,
            state => state,
        };
    }

    fn restart(&mut self) {
        self.state = match self.state {
            State::Settling(Settlement::Spend(_)) => State::Unknown,
            State::Spent | State::Unknown => self.state,
            _ => State::Free,
        };
    }
}

/// The credits that a workspace may hold and have spent: at least and at most.
#[derive(Debug, Default)]
struct Bounds {
    held: [u64; 2],
    spent: [u64; 2],
}

impl Bounds {
    fn of<'l>(workspace: &WorkspaceId, lookups: impl Iterator<Item = &'l Lookup>) -> Self {
        let mut bounds = Self::default();
        for Lookup { credits, may_be_free, state, .. } in
            lookups.filter(|lookup| lookup.workspace == *workspace)
        {
            let (held, spent) = match state {
                State::Holding | State::Settling(Settlement::Release) => ([0, *credits], [0, 0]),
                State::Held if *may_be_free => ([0, *credits], [0, 0]),
                State::Held => ([*credits; 2], [0, 0]),
                State::Settling(Settlement::Spend(_)) => ([0, *credits], [0, *credits]),
                State::Unknown => ([0, 0], [0, *credits]),
                State::Spent => ([0, 0], [*credits; 2]),
                State::Free => ([0, 0], [0, 0]),
            };
            for side in 0..2 {
                bounds.held[side] += held[side];
                bounds.spent[side] += spent[side];
            }
        }
        bounds
    }

    fn allow(&self, actual: Balance) -> bool {
        let is_between = |[least, most]: [u64; 2], credits: u64| (least..=most).contains(&credits);
        // Holds can be of more credits than are granted after a withdrawal.
        let held = self.held.map(|credits| credits.min(actual.granted - actual.spent));
        actual.granted == actual.available + actual.held + actual.spent
            && is_between(held, actual.held)
            && is_between(self.spent, actual.spent)
    }
}
