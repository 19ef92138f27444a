//! Invariant 1.

use std::collections::{BTreeMap, BTreeSet};

use enrich_lib::credit::{Balance, Settlement};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};

use super::ensure;
use crate::event::{Deed, Event};
use crate::trace::Entry;

/// Checks at every moment that `granted = available + held + spent`, and that each total matches the store's operations.
/// Every credit is accounted for.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let mut accounts = BTreeMap::<WorkspaceId, Expected>::new();
    for entry in entries {
        match &entry.event {
            Event::Granted(workspace, credits) => account(&mut accounts, workspace).granted += credits,
            Event::Started { forgets: true, .. } => accounts.values_mut().for_each(|a| a.held.clear()),
            Event::Did(lookup, Deed::Held { workspace, credits, placed_at, expires_at }) => {
                let account = account(&mut accounts, workspace);
                account.advance(*placed_at);
                account.held.insert(*lookup, (*credits, *expires_at));
            }
            Event::Did(_, Deed::Denied { workspace, placed_at, .. }) => {
                account(&mut accounts, workspace).advance(*placed_at);
            }
            Event::Did(lookup, Deed::Settled(workspace, settlement)) => {
                account(&mut accounts, workspace).settle(*lookup, *settlement);
            }
            Event::Totals(workspace, now, shown) => {
                let account = account(&mut accounts, workspace);
                account.advance(*now);
                let expected = account.balance();
                let is_whole = shown.granted == shown.available + shown.held + shown.spent;
                ensure(is_whole && *shown == expected, || format!("{entry}, expected {expected:?}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A minimal model of an account.
#[derive(Default)]
struct Expected {
    granted: u64,
    spent: u64,
    paid: BTreeSet<LookupId>,
    held: BTreeMap<LookupId, (u64, Timestamp)>,
}

impl Expected {
    fn settle(&mut self, lookup: LookupId, settlement: Settlement) {
        self.held.remove(&lookup);
        if let Settlement::Spend(credits) = settlement
            && self.paid.insert(lookup)
        {
            self.spent += credits;
        }
    }

    /// Expires holds. Accounts trust the caller's time, so a node whose clock is ahead expires all holds early.
    fn advance(&mut self, now: Timestamp) {
        self.held.retain(|_, (_, expires_at)| *expires_at > now);
    }

    fn balance(&self) -> Balance {
        let held = self.held.values().map(|(credits, _)| credits).sum();
        Balance {
            granted: self.granted,
            available: self.granted - held - self.spent,
            held,
            spent: self.spent,
        }
    }
}

fn account<'a>(accounts: &'a mut BTreeMap<WorkspaceId, Expected>, id: &WorkspaceId) -> &'a mut Expected {
    accounts.entry(id.clone()).or_default()
}
