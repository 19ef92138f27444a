//! A Rust model of the SQL functions in the PostgreSQL adapter's migrations, which is also the fake's storage.
//!
//! A test makes the same random calls to the model and to PostgreSQL and compares the results
//! (`tests/tests/postgres_model.rs`).

use std::collections::{BTreeMap, BTreeSet};

use super::rows::{
    Heartbeat, Key, KeyFound, Lease, LeaseOutcome, LeaseRequest, LeaseTotal, Lookup, Node, Recall,
    ReturnRequest, Spend, SpendRequest, Violation, Workspace,
};

/// The state of all workspaces. Times are in milliseconds, by the server's clock.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// Indexed by row id, from 1.
    workspaces: Vec<Workspace>,
    keys: Vec<Key>,
    /// Keyed by epoch.
    nodes: BTreeMap<i64, Node>,
    epochs: i64,
    /// Keyed by workspace and epoch.
    leases: BTreeMap<(i64, i64), Lease>,
    spends: BTreeMap<Lookup, Spend>,
    rejected: BTreeSet<Lookup>,
    revision: i64,
    notifications: u64,
    /// The workspaces with leases that another session has locked.
    locked: BTreeSet<i64>,
}

/// Operator commands, and inspection for tests.
impl Database {
    /// Creates a workspace and returns its row id.
    pub fn create_workspace(&mut self, workspace: Workspace) -> i64 {
        self.workspaces.push(workspace);
        self.workspaces.len() as i64
    }

    /// Stores a key.
    pub fn create_key(&mut self, workspace: i64, digest: &[u8]) {
        self.keys.push(Key { digest: digest.to_vec(), workspace, is_revoked: false, revised: 0 });
    }

    /// Revokes a key, and notifies the nodes.
    pub fn revoke_key(&mut self, digest: &[u8]) {
        self.revision += 1;
        for key in self.keys.iter_mut().filter(|key| key.digest == digest) {
            (key.is_revoked, key.revised) = (true, self.revision);
        }
        self.notifications += 1;
    }

    /// Grants credits to a workspace.
    pub fn grant(&mut self, workspace: i64, credits: i64) {
        self.workspace_mut(workspace).granted += credits;
    }

    /// Locks the leases of a workspace, as another session could.
    pub fn lock_leases(&mut self, workspace: i64) {
        self.locked.insert(workspace);
    }

    /// Ends all locks of [`Database::lock_leases`].
    pub fn unlock_leases(&mut self) {
        self.locked.clear();
    }

    /// Returns true if there is such a lease and another session has locked it.
    pub(super) fn is_locked(&self, workspace: i64, epoch: i64) -> bool {
        self.locked.contains(&workspace) && self.leases.contains_key(&(workspace, epoch))
    }

    /// Returns true if another session has locked leases of this workspace.
    pub(super) fn has_locked_leases(&self, workspace: &str) -> bool {
        self.leases
            .keys()
            .any(|(of, epoch)| self.is_locked(*of, *epoch) && self.workspace(*of).id == workspace)
    }

    /// Returns the workspaces, ordered by row id from 1.
    pub fn workspaces(&self) -> &[Workspace] {
        &self.workspaces
    }

    /// Returns the leases, keyed by workspace and epoch.
    pub fn leases(&self) -> &BTreeMap<(i64, i64), Lease> {
        &self.leases
    }

    /// Returns the nodes, keyed by epoch.
    pub fn nodes(&self) -> &BTreeMap<i64, Node> {
        &self.nodes
    }

    /// Returns the number of change notifications sent.
    pub fn notifications(&self) -> u64 {
        self.notifications
    }

    /// Returns the credits that a lookup has spent, or `None` if it has no spend.
    pub fn committed_spend(&self, lookup: &Lookup) -> Option<i64> {
        self.spends.get(lookup).map(|spend| spend.credits)
    }

    /// Returns the spends: the lookup, its workspace, and the credits.
    pub fn committed_spends(&self) -> impl Iterator<Item = (&Lookup, i64, i64)> {
        self.spends.iter().map(|(lookup, spend)| (lookup, spend.workspace, spend.credits))
    }

    /// Returns true if the lookup's spend was committed or rejected.
    pub fn is_settled(&self, lookup: &Lookup) -> bool {
        self.spends.contains_key(lookup) || self.rejected.contains(lookup)
    }

    fn workspace(&self, rowid: i64) -> &Workspace {
        &self.workspaces[rowid as usize - 1]
    }

    fn workspace_mut(&mut self, rowid: i64) -> &mut Workspace {
        &mut self.workspaces[rowid as usize - 1]
    }
}

/// The SQL functions and queries of a node. Each is one transaction and has no effect if it fails.
impl Database {
    /// Models `keys_changed`, without a maximum.
    pub fn keys_changed(&self, since: i64) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().filter(move |key| key.revised > since).map(|key| key.digest.as_slice())
    }

    /// Models `key_find`.
    pub fn find_key(&self, digest: &[u8]) -> Option<KeyFound<'_>> {
        let index = self.keys.iter().position(|key| key.digest == digest && !key.is_revoked)?;
        Some(KeyFound { rowid: index as i64 + 1, workspace: self.workspace(self.keys[index].workspace) })
    }

    /// Returns the credits that a lookup of a workspace has spent.
    pub fn spent_by(&self, lookup: &Lookup, workspace: &str) -> Option<i64> {
        let spend = self.spends.get(lookup)?;
        (self.workspace(spend.workspace).id == workspace).then_some(spend.credits)
    }

    /// Models `node_begin`, except that the epochs are consecutive, which keeps runs deterministic.
    pub fn node_begin(&mut self, name: &str, ttl_ms: i64, now: i64) -> i64 {
        self.epochs += 1;
        self.nodes.insert(self.epochs, Node { name: name.to_owned(), expires_at: now + ttl_ms });
        self.epochs
    }

    /// Models `node_beat`.
    pub fn node_beat(&mut self, epoch: i64, ttl_ms: i64, now: i64) -> Heartbeat {
        let node = self.nodes.get_mut(&epoch).filter(|node| node.expires_at > now);
        let is_active = node.map(|node| node.expires_at = now + ttl_ms).is_some();
        Heartbeat { is_active, revision: self.revision }
    }

    /// Models `node_leave`.
    pub fn node_leave(&mut self, epoch: i64, now: i64) {
        if let Some(node) = self.nodes.get_mut(&epoch) {
            node.expires_at = now.min(node.expires_at);
        }
    }

    /// Models `lease_end`.
    fn lease_end(&mut self, workspace: i64, epoch: i64) {
        if let Some(lease) = self.leases.remove(&(workspace, epoch)) {
            let row = self.workspace_mut(workspace);
            row.leased -= lease.taken - lease.returned;
            row.spent += lease.spent;
        }
    }

    /// Models `nodes_end`.
    pub fn nodes_end(&mut self, leases_max: i64, now: i64) -> i64 {
        let expired = self.nodes.iter().filter(|(_, node)| node.expires_at <= now);
        let mut expired: Vec<_> = expired.map(|(epoch, node)| (node.expires_at, *epoch)).collect();
        expired.sort_unstable();
        let mut ended = 0;
        for (_, epoch) in expired {
            let leases =
                self.leases.keys().filter(|(of, other)| *other == epoch && !self.is_locked(*of, epoch));
            let rest = (leases_max - ended) as usize;
            for (workspace, _) in leases.take(rest).copied().collect::<Vec<_>>() {
                self.lease_end(workspace, epoch);
                ended += 1;
            }
            if self.leases.keys().all(|(_, other)| *other != epoch) {
                self.nodes.remove(&epoch);
            }
            if ended == leases_max {
                break;
            }
        }
        ended
    }

    /// Models `leases_recalled`.
    pub fn leases_recalled(&self, epoch: i64, leases_max: usize) -> Vec<Recall> {
        let recalled =
            self.leases.iter().filter(|((_, of), lease)| *of == epoch && lease.recalled > lease.answered);
        let recalls = recalled.map(|((workspace, _), lease)| Recall {
            name: self.workspace(*workspace).id.clone(),
            workspace: *workspace,
            lease: lease.number,
            taken: lease.taken,
            number: lease.recalled,
        });
        recalls.take(leases_max).collect()
    }

    /// Models `lease_take`.
    pub fn lease_take(
        &mut self,
        epoch: i64,
        workspace: &str,
        request: LeaseRequest,
        now: i64,
    ) -> Result<LeaseOutcome, Violation> {
        let LeaseRequest { number, known, needs, wants, again } = request;
        if self.nodes.get(&epoch).is_none_or(|node| node.expires_at <= now) {
            return Ok(LeaseOutcome::Ended);
        }
        let Some(index) = self.workspaces.iter().position(|w| w.id == workspace) else {
            return Ok(LeaseOutcome::Unknown);
        };
        let workspace = index as i64 + 1;
        let current = self.leases.get(&(workspace, epoch)).map(|lease| lease.number);
        if current.is_some_and(|current| current < number) {
            self.lease_end(workspace, epoch);
        }
        let lease = self.leases.get(&(workspace, epoch)).cloned().unwrap_or_default();
        if current.is_some_and(|current| current > number) || lease.taken < known {
            return Ok(LeaseOutcome::Ended);
        }
        if lease.taken > known {
            return Ok(LeaseOutcome::Taken(LeaseTotal { workspace, taken: lease.taken }));
        }
        if self.workspaces[index].free() < needs {
            let expired = |of: &i64| *of != epoch && self.nodes[of].expires_at <= now;
            let leases = self.leases.keys().filter(|(of, other)| *of == workspace && expired(other));
            for (_, expired) in leases.copied().collect::<Vec<_>>() {
                self.lease_end(workspace, expired);
            }
        }
        let free = self.workspaces[index].free();
        if free >= needs {
            let nodes = self.nodes.values().filter(|node| node.expires_at > now).count() as i64;
            let credits = needs.max(wants.min(free / (2 * nodes)));
            let taken = lease.taken + credits;
            let extended = Lease { number, taken, ..lease };
            extended.check()?;
            self.leases.insert((workspace, epoch), extended);
            self.workspaces[index].leased += credits;
            return Ok(LeaseOutcome::Taken(LeaseTotal { workspace, taken }));
        }
        let total = LeaseTotal { workspace, taken: known };
        let may_return = self.recall(workspace, epoch, again, now);
        Ok(if may_return { LeaseOutcome::Recalled(total) } else { LeaseOutcome::Short(total) })
    }

    /// Returns true if nodes other than `epoch` may have idle credits of `workspace`. The first request also sends recalls
    /// to them.
    fn recall(&mut self, workspace: i64, epoch: i64, again: bool, now: i64) -> bool {
        let mut may_return = false;
        let mut has_notified = false;
        for ((of, other), lease) in &mut self.leases {
            if *of != workspace || *other == epoch || lease.remaining() == 0 {
                continue;
            }
            if !again && lease.recalled == lease.answered {
                lease.recalled += 1;
                has_notified = true;
            }
            may_return |= lease.recalled > lease.answered || self.nodes[other].expires_at <= now;
        }
        self.notifications += u64::from(has_notified);
        may_return
    }

    /// Models `lease_return`. Returns the workspaces with locked leases.
    pub fn lease_return(&mut self, epoch: i64, returns: impl IntoIterator<Item = ReturnRequest>) -> Vec<i64> {
        let mut locked = Vec::new();
        for ReturnRequest { workspace, number, returned, seen } in returns {
            let is_locked = self.is_locked(workspace, epoch);
            let stored = self.leases.get_mut(&(workspace, epoch)).filter(|lease| lease.number == number);
            match (stored, returned) {
                (None, _) => {}
                (Some(_), _) if is_locked => locked.push(workspace),
                (Some(_), None) => self.lease_end(workspace, epoch),
                (Some(lease), Some(returned)) => {
                    let total = returned.max(lease.returned).min(lease.taken - lease.spent);
                    let credits = total - lease.returned;
                    lease.returned = total;
                    lease.answered = lease.answered.max(seen);
                    self.workspace_mut(workspace).leased -= credits;
                }
            }
        }
        locked
    }

    /// Models `lease_show`.
    pub fn lease_show(&mut self, epoch: i64, holds: impl IntoIterator<Item = (i64, i64)>) {
        for (workspace, held) in holds {
            let is_locked = self.is_locked(workspace, epoch);
            if let Some(lease) = self.leases.get_mut(&(workspace, epoch)).filter(|_| !is_locked) {
                lease.held = held;
            }
        }
    }

    /// Models the view `account` without the held credits. Returns the credits granted, spent, and left in leases.
    pub fn account(&self, workspace: i64) -> [i64; 3] {
        let leases = self.leases.iter().filter(|((of, _), _)| *of == workspace);
        let spent: i64 = leases.map(|(_, lease)| lease.spent).sum();
        let row = self.workspace(workspace);
        [row.granted, row.spent + spent, row.leased - spent]
    }

    /// Returns the credits granted, spent, and held by nodes other than `epoch`.
    pub fn balance(&self, workspace: &str, epoch: i64) -> Option<[i64; 3]> {
        let index = self.workspaces.iter().position(|w| w.id == workspace)?;
        let others = self.leases.iter().filter(|((of, other), _)| *of == index as i64 + 1 && *other != epoch);
        let held = others.map(|(_, lease)| lease.held.min(lease.remaining())).sum();
        let [granted, spent, _] = self.account(index as i64 + 1);
        Some([granted, spent, held])
    }

    /// Models `settle`. Returns for each spend whether it is committed.
    pub fn settle(&mut self, batch: &[SpendRequest]) -> Result<Vec<bool>, Violation> {
        let new_spends = self.new_spends(batch);
        // Total cost per lease. A lease pays for all of its spends or none.
        let mut costs: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for request in &new_spends {
            *costs.entry((request.workspace, request.epoch)).or_default() += request.cost;
        }
        costs.retain(|lease, cost| self.leases.get(lease).is_some_and(|lease| lease.remaining() >= *cost));
        for SpendRequest { epoch, workspace, lookup, cost } in new_spends {
            if costs.contains_key(&(workspace, epoch))
                && let Some(lease) = self.leases.get_mut(&(workspace, epoch))
            {
                lease.spent += cost;
                lease.check()?;
                self.spends.insert(lookup, Spend { workspace, credits: cost });
            }
        }
        Ok(batch.iter().map(|request| self.spends.contains_key(&request.lookup)).collect())
    }

    /// Models `charge`. Returns for each spend whether it is committed. The others are rejected for good.
    pub fn charge(&mut self, batch: &[SpendRequest]) -> Result<Vec<bool>, Violation> {
        let mut after = self.clone();
        for SpendRequest { epoch, workspace, lookup, cost } in self.new_spends(batch) {
            let lease = after.leases.get_mut(&(workspace, epoch)).filter(|lease| lease.remaining() >= cost);
            if lease.map(|lease| lease.spent += cost).is_none() {
                let row = after.workspace_mut(workspace);
                if row.free() < cost {
                    after.rejected.insert(lookup);
                    continue;
                }
                row.spent += cost;
                row.check()?;
            }
            after.spends.insert(lookup, Spend { workspace, credits: cost });
        }
        *self = after;
        Ok(batch.iter().map(|request| self.spends.contains_key(&request.lookup)).collect())
    }

    /// Returns the spends of `batch` that were neither committed nor rejected before, one per lookup, ordered by lookup id.
    fn new_spends(&self, batch: &[SpendRequest]) -> Vec<SpendRequest> {
        let mut new_spends: BTreeMap<Lookup, SpendRequest> = BTreeMap::new();
        for request in batch {
            if !self.is_settled(&request.lookup) {
                new_spends.entry(request.lookup).or_insert(*request);
            }
        }
        new_spends.into_values().collect()
    }
}
