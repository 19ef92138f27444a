//! A Rust model of the statements of a node, which is also the fake's storage.
//!
//! The store contract runs on the fake and on a real server (`tests/tests/suites/contract`).

use std::collections::{BTreeMap, BTreeSet};

use super::rows::{
    EmailHash, Held, Hold, HoldRequest, Key, KeyFound, Lookup, Person, Receipt, SettleRequest, Settled,
    Settlement, Spend, Violation, Workspace,
};

/// The state of all workspaces. Times are in milliseconds, by the server's clock.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// Indexed by row id, from 1.
    pub(super) workspaces: Vec<Workspace>,
    pub(super) keys: Vec<Key>,
    holds: BTreeMap<Lookup, Hold>,
    pub(super) spends: BTreeMap<Lookup, Spend>,
    /// The lookup that has paid for each receipt of each workspace, and when.
    pub(super) receipts: BTreeMap<(i64, Receipt), (Lookup, i64)>,
    pub(super) refunded: BTreeSet<Lookup>,
    settlements: Vec<Settlement>,
    /// The number of lookups by workspace, key and outcome, of all days. Those that are billed have no key.
    usage: BTreeMap<(i64, i64, String), i64>,
    /// The fingerprint of the key of all hashes.
    people_key: Option<Vec<u8>>,
    pub(super) people: BTreeMap<EmailHash, Person>,
    pub(super) opt_outs: BTreeSet<EmailHash>,
    pub(super) revision: i64,
    /// The number of records in the log, of the transactions that commit synchronously.
    log: u64,
    /// The workspaces whose rows another session has locked.
    locked: BTreeSet<i64>,
}

/// Inspection and locks for tests.
impl Database {
    /// Locks the balance of a workspace, as another session could.
    pub fn lock_workspace(&mut self, workspace: i64) {
        self.locked.insert(workspace);
    }

    /// Ends all locks of [`Database::lock_workspace`].
    pub fn unlock_workspaces(&mut self) {
        self.locked.clear();
    }

    /// Returns the workspaces, ordered by row id from 1.
    pub fn workspaces(&self) -> &[Workspace] {
        &self.workspaces
    }

    /// Returns the row id of the workspace with this name.
    pub fn workspace_rowid(&self, id: &str) -> Option<i64> {
        self.workspaces.iter().position(|workspace| workspace.id == id).map(|index| index as i64 + 1)
    }

    /// Returns the holds.
    pub fn holds(&self) -> &BTreeMap<Lookup, Hold> {
        &self.holds
    }

    /// Returns the settlements that are not returned or counted.
    pub fn settlements(&self) -> &[Settlement] {
        &self.settlements
    }

    /// Returns the committed spends.
    pub fn spends(&self) -> &BTreeMap<Lookup, Spend> {
        &self.spends
    }

    /// Returns the lookup that has paid for a receipt of a workspace, by its name.
    pub fn payer(&self, workspace: &str, receipt: &Receipt) -> Option<Lookup> {
        Some(self.receipts.get(&(self.workspace_rowid(workspace)?, *receipt))?.0)
    }

    /// Returns the number of lookups of a workspace by key and outcome. Those that are billed count when their
    /// settlements are counted, with the key 0.
    pub fn usage(&self, workspace: i64) -> BTreeMap<(u32, String), u64> {
        let rows = self.usage.iter().filter(|((of, ..), _)| *of == workspace);
        rows.map(|((_, key, outcome), lookups)| ((*key as u32, outcome.clone()), lookups.cast_unsigned()))
            .collect()
    }

    fn workspace(&self, rowid: i64) -> &Workspace {
        &self.workspaces[rowid as usize - 1]
    }

    pub(super) fn workspace_mut(&mut self, rowid: i64) -> &mut Workspace {
        &mut self.workspaces[rowid as usize - 1]
    }
}

/// The log.
impl Database {
    /// Returns the number of records. A transaction that adds none has nothing to commit.
    pub(super) fn log_len(&self) -> u64 {
        self.log
    }

    pub(super) fn write_log(&mut self) {
        self.log += 1;
    }
}

/// The statements of a node. Each is one transaction and has no effect if it fails.
impl Database {
    /// Returns the number of the last change of keys.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns the digests of the keys that have changed since a revision.
    pub fn keys_changed(&self, since: i64) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().filter(move |key| key.revision > since).map(|key| key.digest.as_slice())
    }

    /// Finds an active key.
    pub fn find_key(&self, digest: &[u8], now: i64) -> Option<KeyFound<'_>> {
        let index = self.keys.iter().position(|key| key.digest == digest)?;
        let (key, rowid) = (&self.keys[index], index as i64 + 1);
        let workspace = self.workspace(key.workspace);
        let is_active = key.is_current(now) && !key.is_disabled && !workspace.is_suspended;
        let (expires_at, is_test) = (key.expires_at, key.is_test);
        is_active.then_some(KeyFound { rowid, digest: &key.digest, workspace, expires_at, is_test })
    }

    /// Stores the fingerprint of the key of all hashes if there is none. Returns true if the stored one is
    /// the same.
    pub fn check_people_key(&mut self, fingerprint: Vec<u8>) -> bool {
        if self.people_key.is_none() {
            self.write_log();
        }
        *self.people_key.get_or_insert_with(|| fingerprint.clone()) == fingerprint
    }

    /// Returns whether another fingerprint is stored.
    pub fn has_other_people_key(&self, fingerprint: &[u8]) -> bool {
        self.people_key.as_ref().is_some_and(|key| key != fingerprint)
    }

    /// Returns the trusted profile of a person.
    pub fn find_person(&self, hash: &EmailHash, confidence_min: f64) -> Option<&str> {
        let trusted = self.people.get(hash).filter(|person| person.confidence >= confidence_min);
        trusted.map(|person| person.profile.as_str())
    }

    /// Returns true if the person with this hash of an opt-out opted out.
    pub fn has_opted_out(&self, hash: &EmailHash) -> bool {
        self.opt_outs.contains(hash)
    }

    /// Returns true if another session has locked the workspace.
    pub fn is_locked(&self, workspace: &str) -> bool {
        self.workspace_rowid(workspace).is_some_and(|rowid| self.locked.contains(&rowid))
    }

    /// Places holds of workspaces that are not locked.
    pub fn hold(&mut self, batch: &[HoldRequest], now: i64) -> Result<Held, Violation> {
        let (mut held, mut placed) = (Held::default(), BTreeMap::new());
        let mut sums = BTreeMap::<&str, i64>::new();
        for HoldRequest { lookup, workspace, credits, ttl_ms, receipt, .. } in batch {
            let is_free = receipt.is_some_and(|receipt| self.payer(workspace, &receipt).is_some());
            let credits = if is_free { 0 } else { *credits };
            let total = sums.entry(workspace.as_str()).or_default();
            *total = total.saturating_add(credits);
            held.amounts.push(credits);
            held.totals.push(*total);
            let rowid = self.workspace_rowid(workspace).filter(|rowid| !self.locked.contains(rowid));
            let Some(rowid) = rowid else { continue };
            let before =
                *held.available.entry(workspace.clone()).or_insert(self.workspace(rowid).available());
            if *total > before && credits != 0 {
                continue;
            }
            if credits < 0 {
                return Err(Violation("credit_hold_credits_check"));
            }
            let hold = Hold { workspace: rowid, credits, expires_at: now + ttl_ms };
            if self.holds.contains_key(lookup) || placed.insert(*lookup, hold).is_some() {
                return Err(Violation("credit_hold_pkey"));
            }
        }
        if batch.iter().any(|hold| self.spends.contains_key(&hold.lookup)) {
            return Err(Violation("credit_spend_pkey"));
        }
        for (lookup, hold) in placed {
            self.workspace_mut(hold.workspace).used += hold.credits;
            self.holds.insert(lookup, hold);
        }
        Ok(held)
    }

    /// Ends holds.
    pub fn settle(
        &mut self,
        batch: &[SettleRequest],
        is_release: bool,
        now: i64,
    ) -> Result<Settled, Violation> {
        let is_paid = |request: &SettleRequest| {
            request.receipt.and_then(|r| self.payer(&request.workspace, &r)).is_some()
        };
        let spends = |request: &SettleRequest| {
            !is_release && !is_paid(request) && self.spends.contains_key(&request.lookup)
        };
        if batch.iter().any(|request| self.holds.contains_key(&request.lookup) && spends(request)) {
            return Err(Violation("credit_spend_pkey"));
        }
        let mut settled = Settled::default();
        let mut groups = BTreeMap::<(i64, (i64, i64)), (i64, i64)>::new();
        for SettleRequest { lookup, workspace, credits, group, receipt } in batch {
            let rowid = self.workspace_rowid(workspace);
            let payer = receipt.and_then(|receipt| self.payer(workspace, &receipt));
            let credits = if payer.is_some() { &0 } else { credits };
            let Some(hold) = self
                .holds
                .get(lookup)
                .copied()
                .filter(|hold| Some(hold.workspace) == rowid && hold.credits >= *credits)
            else {
                continue;
            };
            self.holds.remove(lookup);
            let spent = if is_release { 0 } else { *credits };
            if spent > 0 {
                self.spends.insert(*lookup, Spend { workspace: hold.workspace, credits: spent });
                let receipt = receipt.map(|receipt| ((hold.workspace, receipt), (*lookup, now)));
                self.receipts.extend(receipt);
            } else if receipt.is_some() {
                settled.unpaid.push((*lookup, payer));
            }
            let (lookups, rest) = groups.entry((hold.workspace, *group)).or_default();
            *lookups += i64::from(spent > 0);
            *rest += hold.credits - spent;
            settled.ended += 1;
        }
        for ((workspace, _), (lookups, rest)) in groups {
            self.write_log();
            let rows = [(lookups, 0), (0, rest)].into_iter().filter(|row| *row != (0, 0));
            self.settlements.extend(rows.map(|(lookups, rest)| Settlement {
                settled_at: now,
                workspace,
                lookups,
                rest,
            }));
        }
        Ok(settled)
    }

    /// Deletes up to `count_max` receipts of spends since `since` and until `until`. Returns their number.
    pub fn end_receipts(&mut self, since: i64, count_max: usize, until: i64) -> usize {
        let is_due = |at: i64| at > since && at <= until;
        let due = self.receipts.iter().filter(|(_, (_, at))| is_due(*at)).map(|(key, _)| *key);
        let due: Vec<_> = due.take(count_max).collect();
        due.iter().filter_map(|key| self.receipts.remove(key)).count()
    }

    /// Ends up to `count_max` holds that expired after `since`. Returns their number.
    pub fn expire(&mut self, since: i64, count_max: usize, now: i64) -> usize {
        let is_due = |hold: &Hold| hold.expires_at > since && hold.expires_at <= now;
        let mut due: Vec<_> = self
            .holds
            .iter()
            .filter(|(_, hold)| is_due(hold))
            .map(|(lookup, hold)| (hold.expires_at, *lookup))
            .collect();
        due.sort_unstable();
        due.truncate(count_max);
        let mut sums = BTreeMap::<i64, i64>::new();
        for (_, lookup) in &due {
            if let Some(hold) = self.holds.remove(lookup) {
                *sums.entry(hold.workspace).or_default() += hold.credits;
            }
        }
        for (workspace, rest) in sums {
            self.settlements.push(Settlement { settled_at: now, workspace, lookups: 0, rest });
        }
        due.len()
    }

    /// Returns the rest of up to `count_max` settlements since the time `since` to the workspaces that are neither
    /// locked nor `left_out`. Returns whether no others are left, and the locked workspaces that it found, with the
    /// time of their first settlement.
    pub fn return_credits(
        &mut self,
        since: i64,
        count_max: usize,
        left_out: &[String],
    ) -> (bool, BTreeMap<String, i64>) {
        let left_out: Vec<_> = left_out.iter().filter_map(|id| self.workspace_rowid(id)).collect();
        let due = self.due(since, count_max, |settlement| {
            settlement.rest > 0 && !left_out.contains(&settlement.workspace)
        });
        let is_done = due.len() < count_max;
        let (locked, taken): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|settlement| self.locked.contains(&settlement.workspace));
        for settlement in taken {
            self.workspace_mut(settlement.workspace).used -= settlement.rest;
        }
        let mut first = BTreeMap::new();
        for settlement in &locked {
            let id = self.workspace(settlement.workspace).id.clone();
            let at = first.entry(id).or_insert(settlement.settled_at);
            *at = settlement.settled_at.min(*at);
        }
        self.settlements.extend(locked);
        (is_done, first)
    }

    /// Counts up to `count_max` settlements since the time `since`. Returns whether none is left.
    pub fn count_spends(&mut self, since: i64, count_max: usize) -> bool {
        let due = self.due(since, count_max, |settlement| settlement.lookups > 0);
        for settlement in &due {
            let key = (settlement.workspace, 0, "billed".to_owned());
            *self.usage.entry(key).or_default() += settlement.lookups;
        }
        due.len() < count_max
    }

    /// Removes up to `count_max` settlements since the time `since`.
    fn due(&mut self, since: i64, count_max: usize, is: impl Fn(&Settlement) -> bool) -> Vec<Settlement> {
        let mut count = 0;
        let is_due = |settlement: &mut Settlement| {
            let is_due = settlement.settled_at > since && is(settlement) && count < count_max;
            count += usize::from(is_due);
            is_due
        };
        self.settlements.extract_if(.., is_due).collect()
    }

    /// Adds free lookups to the usage: the workspace's name, the key, the outcome and the number of each.
    pub fn count_free(&mut self, counts: impl Iterator<Item = (String, i64, String, i64)>) {
        for (workspace, key, outcome, lookups) in counts {
            if let Some(rowid) = self.workspace_rowid(&workspace) {
                *self.usage.entry((rowid, key, outcome)).or_default() += lookups;
            }
        }
    }

    /// Returns the credits granted, spent and held.
    pub fn balance(&self, workspace: &str) -> Option<[i64; 3]> {
        let rowid = self.workspace_rowid(workspace)?;
        let held: i64 =
            self.holds.values().filter(|hold| hold.workspace == rowid).map(|hold| hold.credits).sum();
        let rest = self.rest(rowid);
        let workspace = self.workspace(rowid);
        Some([workspace.granted, workspace.used - held - rest, held])
    }

    /// Returns the credits that are due to a workspace.
    pub fn rest(&self, workspace: i64) -> i64 {
        let settlements = self.settlements.iter().filter(|settlement| settlement.workspace == workspace);
        settlements.map(|settlement| settlement.rest).sum()
    }
}
