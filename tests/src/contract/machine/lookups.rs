//! The part of the model that concerns holds, spends and usage.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_lib::credit::{Balance, HoldOutcome, Shortage};
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_lib::receipt::RECEIPT_TTL;
use enrich_store::records::SpendRow;
use enrich_store::usage::{Day, UsageRow};

use super::model::{Lookup, Model};

/// Returns a balance without holds, which the process that serves may have in memory.
pub(super) fn without_holds(balance: Balance) -> Balance {
    Balance { available: balance.available + balance.held, held: 0, ..balance }
}

impl Model {
    /// Places the hold of a lookup.
    ///
    /// It takes no credits if its receipt is spent.
    pub(super) fn hold(&mut self, mut lookup: Lookup) -> HoldOutcome {
        let Balance { available, held, .. } = self.balance(&lookup.workspace);
        if self.payer(&lookup).is_some() {
            lookup.hold = lookup.hold.map(|(_, expires_at)| (0, expires_at));
        }
        if lookup.hold.is_some_and(|(credits, _)| credits > available) {
            let shortage = if held == 0 { Shortage::Exhausted } else { Shortage::Held };
            return HoldOutcome::Insufficient(shortage);
        }
        self.lookups.push(lookup);
        HoldOutcome::Granted
    }

    /// Returns the lookup that has paid for the receipt of a lookup.
    pub(super) fn payer(&self, lookup: &Lookup) -> Option<LookupId> {
        Some(self.payers.get(&(lookup.workspace.clone(), lookup.receipt?))?.0)
    }

    /// Returns which other lookup has paid if the settlement succeeds, or `None` if it fails. A release spends
    /// nothing.
    pub(super) fn settle(&mut self, id: LookupId, credits: u64) -> Option<Option<LookupId>> {
        let n = self.lookups.iter().position(|lookup| lookup.id == id).unwrap();
        let is_first = credits > 0 && self.lookups[n].spent.is_none();
        let payer = self.payer(&self.lookups[n]).filter(|_| is_first);
        let lookup = &mut self.lookups[n];
        match lookup.hold {
            _ if payer.is_some() => lookup.hold = None,
            Some((held, _)) if credits > held => return None,
            Some(_) => {
                (lookup.hold, lookup.spent) = (None, (credits > 0).then_some(credits));
                if let (Some(receipt), Some(_)) = (lookup.receipt, lookup.spent) {
                    self.payers.insert((lookup.workspace.clone(), receipt), (id, self.now));
                }
            }
            None => {}
        }
        let is_settled = payer.is_some() || lookup.spent.unwrap_or_default() == credits;
        is_settled.then_some(payer)
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        for Lookup { hold, .. } in &mut self.lookups {
            hold.take_if(|(_, expires_at)| *expires_at <= self.now);
        }
        self.payers.retain(|_, (_, at)| *at + RECEIPT_TTL > self.now);
    }

    /// Removes the spends that arrived before the day, up to the first one with a receipt, and returns their
    /// number.
    pub(super) fn remove_spends(&mut self, before: Day) -> u64 {
        let first_kept = self.payers.values().map(|(payer, _)| *payer).min();
        let is_old = |lookup: &&mut Lookup| {
            let is_kept = first_kept.is_some_and(|first| lookup.id >= first);
            let arrived_on = Day::from_timestamp(lookup.arrived_at);
            lookup.spent.is_some() && !lookup.is_removed && !is_kept && arrived_on < before
        };
        self.lookups.iter_mut().filter(is_old).map(|lookup| lookup.is_removed = true).count() as u64
    }

    pub(super) fn spends(&self, workspace: &WorkspaceId) -> Vec<SpendRow> {
        let is_listed = |lookup: &&Lookup| lookup.workspace == *workspace && !lookup.is_removed;
        let row = |Lookup { id, key, arrived_at, spent, .. }: &Lookup| {
            let (lookup_id, key, at, refunded_at) = (*id, *key, *arrived_at, self.refunded_at(*id));
            Some(SpendRow { lookup_id, key, credits: (*spent)?, at, refunded_at })
        };
        let mut rows: Vec<_> = self.lookups.iter().filter(is_listed).filter_map(row).collect();
        rows.sort_by_key(|row| row.lookup_id);
        rows
    }

    pub(super) fn usage(&self, id: &WorkspaceId) -> Vec<UsageRow> {
        let mut sums = BTreeMap::<_, (u64, u64)>::new();
        for lookup in self.lookups.iter().filter(|lookup| lookup.workspace == *id) {
            if let Some(credits) = lookup.spent {
                let sum =
                    sums.entry((Day::from_timestamp(lookup.arrived_at), lookup.key, "billed")).or_default();
                *sum = (sum.0 + 1, sum.1 + credits);
            }
        }
        let free = self.free.iter().filter(|((workspace, ..), _)| workspace == id);
        sums.extend(free.map(|((_, day, key, outcome), lookups)| ((*day, *key, *outcome), (*lookups, 0))));
        let row = |((day, key, outcome), (lookups, credits))| {
            let outcome = str::to_owned(outcome);
            UsageRow { day, key, outcome, lookups, credits }
        };
        sums.into_iter().map(row).collect()
    }
}
