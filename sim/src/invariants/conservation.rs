//! Invariant 1.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_lib::credit::{Balance, Settlement};
use enrich_lib::model::{LookupId, WorkspaceId};

use super::ensure::ensure;
use crate::event::{Event, StoreEffect};
use crate::trace::Entry;

/// Checks at every moment that `granted = available + held + spent`, and that each balance matches the store's operations.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let mut accounts = BTreeMap::<WorkspaceId, ExpectedAccount>::new();
    for entry in entries {
        match &entry.event {
            Event::CreditsGranted(workspace, credits) => account(&mut accounts, workspace).granted += credits,
            Event::NodeStarted { loses_holds: true, .. } => {
                accounts.values_mut().for_each(|account| account.held.clear());
            }
            Event::StoreEffect(lookup, StoreEffect::Held { workspace, credits, expires_at }) => {
                let account = account(&mut accounts, workspace);
                account.held.insert(*lookup, (*credits, *expires_at));
            }
            Event::StoreEffect(lookup, StoreEffect::Settled(workspace, settlement)) => {
                account(&mut accounts, workspace).settle(*lookup, *settlement);
            }
            // A failed spend ends its hold as well.
            Event::StoreEffect(lookup, StoreEffect::SettleRefused(_)) => {
                for account in accounts.values_mut() {
                    account.held.remove(lookup);
                }
            }
            Event::Balance(workspace, now, actual) => {
                let account = account(&mut accounts, workspace);
                account.advance(*now);
                let expected = account.balance();
                let adds_up = actual.granted == actual.available + actual.held + actual.spent;
                ensure(adds_up && *actual == expected, || format!("{entry}, expected {expected:?}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A minimal model of an account.
#[derive(Default)]
struct ExpectedAccount {
    granted: u64,
    spent: u64,
    spent_lookups: BTreeSet<LookupId>,
    held: BTreeMap<LookupId, (u64, Duration)>,
}

impl ExpectedAccount {
    fn settle(&mut self, lookup: LookupId, settlement: Settlement) {
        self.held.remove(&lookup);
        if let Settlement::Spend(credits) = settlement
            && self.spent_lookups.insert(lookup)
        {
            self.spent += credits;
        }
    }

    /// Expires holds.
    fn advance(&mut self, now: Duration) {
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

fn account<'a>(
    accounts: &'a mut BTreeMap<WorkspaceId, ExpectedAccount>,
    id: &WorkspaceId,
) -> &'a mut ExpectedAccount {
    accounts.entry(id.clone()).or_default()
}
