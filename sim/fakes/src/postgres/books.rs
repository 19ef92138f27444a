//! A Rust model of the functions in the PostgreSQL adapter's migrations. It also is the fake's storage.
//!
//! A test makes the same random calls to the model and to PostgreSQL and compares the results
//! (`tests/tests/suites/models/postgres.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A lookup id as stored in its column.
pub type Lookup = [u8; 16];

/// The state of all workspaces. Times are in milliseconds, by the server's clock.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// Indexed by row id, from 1.
    workspaces: Vec<Workspace>,
    keys: Vec<Key>,
    /// Keyed by epoch.
    nodes: BTreeMap<i64, Node>,
    epochs: i64,
    /// Keyed by workspace and epoch.
    leases: BTreeMap<(i64, i64), Lease>,
    spends: BTreeMap<Lookup, Spend>,
    voids: BTreeSet<Lookup>,
    revision: i64,
    notifications: u64,
}

/// A workspace and its totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workspace {
    /// The workspace's name.
    pub id: String,
    /// The maximum number of requests per window.
    pub quota_limit: i64,
    /// The length of a window, in seconds.
    pub window_seconds: i32,
    /// Total credits granted.
    pub granted: i64,
    /// Total credits spent, except those paid by leases that still exist.
    pub spent: i64,
    /// Credits leased by nodes and not returned.
    pub leased: i64,
}

#[derive(Clone, Debug)]
struct Key {
    digest: Vec<u8>,
    workspace: i64,
    is_revoked: bool,
}

/// A registered node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The node's name.
    pub name: String,
    /// When the node expires without a heartbeat, by the server's clock.
    pub ends_at: i64,
}

/// A node's lease of a workspace's credits. The counters only grow, except that a void reduces `spent`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Total credits leased.
    pub taken: i64,
    /// Total credits returned.
    pub returned: i64,
    /// Total credits spent.
    pub spent: i64,
    /// Credits held by lookups, as last reported by the node. Informational.
    pub held: i64,
    /// The number of times other nodes have recalled the idle credits of this lease.
    pub recalled: i64,
    /// The number of the last recall that the node has answered.
    pub answered: i64,
}

#[derive(Clone, Debug)]
struct Spend {
    workspace: i64,
    credits: i64,
    epoch: Option<i64>,
}

/// An active key and its workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFound<'a> {
    /// The key's row id.
    pub rowid: i64,
    /// The key's workspace.
    pub workspace: &'a Workspace,
}

/// The reply to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// True if the session is still active.
    pub lives: bool,
    /// A number that changes with every change to keys and quotas.
    pub revision: i64,
    /// The workspaces whose idle credits other nodes need.
    pub recalls: Vec<Recall>,
}

/// A request of other nodes for the idle credits of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// The workspace's name.
    pub name: String,
    /// The workspace's row id.
    pub workspace: i64,
    /// The total credits that the node has leased from the workspace.
    pub taken: i64,
    /// The number of the recall.
    pub number: i64,
}

/// A lease request.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The total that the node believes it has leased.
    pub known: i64,
    /// The credits that the node needs immediately.
    pub needs: i64,
    /// The lease size that the node requests if the balance suffices for all nodes.
    pub wants: i64,
    /// True if this request repeats one that has already sent recalls.
    pub again: bool,
}

/// The outcome of a lease request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// The session has ended.
    Ended,
    /// The workspace does not exist.
    Unknown,
    /// Credits were leased.
    Taken(Slice),
    /// Other nodes may have idle credits and were asked to return them.
    Recalled(Slice),
    /// The credits do not suffice, and no other node has idle ones.
    Short(Slice),
}

/// The total of a lease after a lease request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The workspace's row id.
    pub workspace: i64,
    /// The total credits that the node has leased from the workspace.
    pub taken: i64,
}

/// One spend of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Settling {
    /// The epoch of the lease that pays.
    pub epoch: i64,
    /// The workspace's row id.
    pub workspace: i64,
    /// The lookup id.
    pub lookup: Lookup,
    /// The cost in credits.
    pub cost: i64,
}

/// A violated constraint of the schema. The call had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(
    /// The constraint's name.
    pub &'static str,
);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the call violates the constraint {}", self.0)
    }
}

impl Lease {
    /// Returns the credits that are neither returned nor spent.
    pub fn left(&self) -> i64 {
        self.taken - self.returned - self.spent
    }

    fn check(&self) -> Result<(), Violation> {
        let fits = self.returned >= 0 && self.spent >= 0 && self.left() >= 0;
        if fits { Ok(()) } else { Err(Violation("nothing_is_spent_but_what_was_taken")) }
    }
}

impl Workspace {
    /// Returns the credits that are neither spent nor leased.
    pub fn free(&self) -> i64 {
        self.granted - self.spent - self.leased
    }

    fn check(&self) -> Result<(), Violation> {
        let fits = self.spent >= 0 && self.leased >= 0 && self.free() >= 0;
        if fits { Ok(()) } else { Err(Violation("nothing_is_spent_twice")) }
    }
}

/// Operator commands, and inspection for tests.
impl Books {
    /// Creates a workspace and returns its row id.
    pub fn create_workspace(&mut self, workspace: Workspace) -> i64 {
        self.workspaces.push(workspace);
        self.workspaces.len() as i64
    }

    /// Stores a key.
    pub fn create_key(&mut self, workspace: i64, digest: &[u8]) {
        self.keys.push(Key { digest: digest.to_vec(), workspace, is_revoked: false });
    }

    /// Revokes a key, and notifies the nodes.
    pub fn revoke_key(&mut self, digest: &[u8]) {
        self.keys.iter_mut().filter(|key| key.digest == digest).for_each(|key| key.is_revoked = true);
        self.revision += 1;
        self.notifications += 1;
    }

    /// Grants credits to a workspace.
    pub fn grant(&mut self, workspace: i64, credits: i64) {
        self.workspace_mut(workspace).granted += credits;
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

    /// Returns the credits that a lookup has spent, or `None` if it has no spend or a voided one.
    pub fn spent_by(&self, lookup: &Lookup) -> Option<i64> {
        self.spends.get(lookup).filter(|_| !self.voids.contains(lookup)).map(|spend| spend.credits)
    }

    /// Returns the spends that are not voided: the lookup, its workspace, and the credits.
    pub fn standing(&self) -> impl Iterator<Item = (&Lookup, i64, i64)> {
        let spends = self.spends.iter().filter(|(lookup, _)| !self.voids.contains(*lookup));
        spends.map(|(lookup, spend)| (lookup, spend.workspace, spend.credits))
    }

    /// Returns true if the lookup's spend was committed or voided.
    pub fn has_decided(&self, lookup: &Lookup) -> bool {
        self.spends.contains_key(lookup) || self.voids.contains(lookup)
    }

    fn workspace(&self, rowid: i64) -> &Workspace {
        &self.workspaces[rowid as usize - 1]
    }

    fn workspace_mut(&mut self, rowid: i64) -> &mut Workspace {
        &mut self.workspaces[rowid as usize - 1]
    }
}

/// The SQL functions and queries of a node. Each is one transaction and has no effect if it fails.
impl Books {
    /// Returns the workspace of an active key.
    pub fn find_key(&self, digest: &[u8]) -> Option<KeyFound<'_>> {
        let at = self.keys.iter().position(|key| key.digest == digest && !key.is_revoked)?;
        Some(KeyFound { rowid: at as i64 + 1, workspace: self.workspace(self.keys[at].workspace) })
    }

    /// Models `node_begin`.
    pub fn node_begin(&mut self, name: &str, ttl_ms: i64, now: i64) -> i64 {
        self.epochs += 1;
        self.nodes.insert(self.epochs, Node { name: name.to_owned(), ends_at: now + ttl_ms });
        self.epochs
    }

    /// Models `node_beat`.
    pub fn node_beat(&mut self, epoch: i64, ttl_ms: i64, now: i64) -> Beat {
        let lives = self
            .nodes
            .get_mut(&epoch)
            .filter(|node| node.ends_at > now)
            .map(|node| node.ends_at = now + ttl_ms);
        let recalled =
            self.leases.iter().filter(|((_, of), lease)| *of == epoch && lease.recalled > lease.answered);
        let recalls = recalled.map(|((workspace, _), lease)| Recall {
            name: self.workspace(*workspace).id.clone(),
            workspace: *workspace,
            taken: lease.taken,
            number: lease.recalled,
        });
        Beat { lives: lives.is_some(), revision: self.revision, recalls: recalls.collect() }
    }

    /// Models `node_leave`.
    pub fn node_leave(&mut self, epoch: i64, now: i64) {
        if let Some(node) = self.nodes.get_mut(&epoch) {
            node.ends_at = now.min(node.ends_at);
        }
    }

    /// Models `nodes_end`.
    pub fn nodes_end(&mut self, now: i64) -> i64 {
        let gone: Vec<_> =
            self.nodes.iter().filter(|(_, node)| node.ends_at <= now).map(|(epoch, _)| *epoch).collect();
        for epoch in &gone {
            let leases: Vec<_> = self.leases.keys().filter(|(_, of)| of == epoch).copied().collect();
            for at in leases {
                if let Some(lease) = self.leases.remove(&at) {
                    let books = self.workspace_mut(at.0);
                    books.leased -= lease.taken - lease.returned;
                    books.spent += lease.spent;
                }
            }
            self.nodes.remove(epoch);
        }
        gone.len() as i64
    }

    /// Models `lease_take`.
    pub fn lease_take(
        &mut self,
        epoch: i64,
        workspace: &str,
        wish: Wish,
        now: i64,
    ) -> Result<LeaseOutcome, Violation> {
        if self.nodes.get(&epoch).is_none_or(|node| node.ends_at <= now) {
            return Ok(LeaseOutcome::Ended);
        }
        let Some(at) = self.workspaces.iter().position(|w| w.id == workspace) else {
            return Ok(LeaseOutcome::Unknown);
        };
        let workspace = at as i64 + 1;
        let free = self.workspaces[at].free();
        let lease = self.leases.entry((workspace, epoch)).or_default();
        if lease.taken > wish.known {
            return Ok(LeaseOutcome::Taken(Slice { workspace, taken: lease.taken }));
        }
        if free >= wish.needs {
            let nodes = self.nodes.values().filter(|node| node.ends_at > now).count() as i64;
            let slice = wish.needs.max(wish.wants.min(free / (2 * nodes)));
            let taken = Lease { taken: lease.taken + slice, ..lease.clone() };
            taken.check()?;
            *lease = taken;
            let taken = lease.taken;
            self.workspaces[at].leased += slice;
            return Ok(LeaseOutcome::Taken(Slice { workspace, taken }));
        }
        let slice = Slice { workspace, taken: lease.taken };
        let may_give = self.recall(workspace, epoch, wish.again, now);
        Ok(if may_give { LeaseOutcome::Recalled(slice) } else { LeaseOutcome::Short(slice) })
    }

    /// Returns true if nodes other than `epoch` may have idle credits of `workspace`. The first request also sends recalls
    /// to them.
    fn recall(&mut self, workspace: i64, epoch: i64, again: bool, now: i64) -> bool {
        let mut may_give = false;
        let mut is_told = false;
        for ((of, other), lease) in &mut self.leases {
            if *of != workspace || *other == epoch || lease.left() == 0 {
                continue;
            }
            if !again && lease.recalled == lease.answered {
                lease.recalled += 1;
                is_told = true;
            }
            may_give |= lease.recalled > lease.answered || self.nodes[other].ends_at <= now;
        }
        self.notifications += u64::from(is_told);
        may_give
    }

    /// Models `lease_return`.
    pub fn lease_return(
        &mut self,
        epoch: i64,
        workspace: i64,
        returns: i64,
        seen: i64,
    ) -> Result<(), Violation> {
        let Some(lease) = self.leases.get_mut(&(workspace, epoch)) else { return Ok(()) };
        let back = (returns - lease.returned).max(0);
        let returned =
            Lease { returned: lease.returned + back, answered: lease.answered.max(seen), ..lease.clone() };
        returned.check()?;
        *lease = returned;
        self.workspace_mut(workspace).leased -= back;
        Ok(())
    }

    /// Models `lease_show`.
    pub fn lease_show(&mut self, epoch: i64, holds: impl IntoIterator<Item = (i64, i64)>) {
        for (workspace, held) in holds {
            if let Some(lease) = self.leases.get_mut(&(workspace, epoch)) {
                lease.held = held;
            }
        }
    }

    /// Models the view `account` without the held credits. Returns the credits granted, spent, and left in leases.
    pub fn account(&self, workspace: i64) -> [i64; 3] {
        let leases = self.leases.iter().filter(|((of, _), _)| *of == workspace);
        let spent: i64 = leases.map(|(_, lease)| lease.spent).sum();
        let books = self.workspace(workspace);
        [books.granted, books.spent + spent, books.leased - spent]
    }

    /// Returns the credits granted, spent, and held by nodes other than `epoch`.
    pub fn balance(&self, workspace: &str, epoch: i64) -> Option<[i64; 3]> {
        let at = self.workspaces.iter().position(|w| w.id == workspace)?;
        let others = self.leases.iter().filter(|((of, other), _)| *of == at as i64 + 1 && *other != epoch);
        let held = others.map(|(_, lease)| lease.held.min(lease.left())).sum();
        let [granted, spent, _] = self.account(at as i64 + 1);
        Some([granted, spent, held])
    }

    /// Models `settle`. Returns for each spend whether it is in effect, or `None` if its lease cannot pay.
    pub fn settle(&mut self, batch: &[Settling]) -> Result<Vec<Option<bool>>, Violation> {
        let fresh = self.fresh(batch);
        // Total cost per lease. A lease pays for all of its spends or none.
        let mut asked: BTreeMap<(i64, i64), i64> = BTreeMap::new();
        for settling in &fresh {
            *asked.entry((settling.workspace, settling.epoch)).or_default() += settling.cost;
        }
        asked.retain(|at, cost| self.leases.get(at).is_some_and(|lease| lease.left() >= *cost));
        for Settling { epoch, workspace, lookup, cost } in fresh {
            if asked.contains_key(&(workspace, epoch))
                && let Some(lease) = self.leases.get_mut(&(workspace, epoch))
            {
                lease.spent += cost;
                lease.check()?;
                self.spends.insert(lookup, Spend { workspace, credits: cost, epoch: Some(epoch) });
            }
        }
        let stands = |lookup| match (self.voids.contains(lookup), self.spends.contains_key(lookup)) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => None,
        };
        Ok(batch.iter().map(|settling| stands(&settling.lookup)).collect())
    }

    /// Models `charge`. Returns for each spend whether it is in effect.
    pub fn charge(&mut self, batch: &[Settling]) -> Result<Vec<bool>, Violation> {
        let mut after = self.clone();
        for Settling { epoch, workspace, lookup, cost } in self.fresh(batch) {
            let lease = after.leases.get_mut(&(workspace, epoch)).filter(|lease| lease.left() >= cost);
            let payer = lease.map(|lease| lease.spent += cost).map(|()| epoch);
            if payer.is_none() {
                let books = after.workspace_mut(workspace);
                if books.free() < cost {
                    continue;
                }
                books.spent += cost;
                books.check()?;
            }
            after.spends.insert(lookup, Spend { workspace, credits: cost, epoch: payer });
        }
        *self = after;
        let stands = |lookup| self.spends.contains_key(lookup) && !self.voids.contains(lookup);
        Ok(batch.iter().map(|settling| stands(&settling.lookup)).collect())
    }

    /// Returns the spends of `batch` that were neither committed nor voided before, one per lookup, ordered by lookup id.
    fn fresh(&self, batch: &[Settling]) -> Vec<Settling> {
        let mut fresh: BTreeMap<Lookup, Settling> = BTreeMap::new();
        for settling in batch {
            if !self.spends.contains_key(&settling.lookup) && !self.voids.contains(&settling.lookup) {
                fresh.entry(settling.lookup).or_insert(*settling);
            }
        }
        fresh.into_values().collect()
    }

    /// Models `void`.
    pub fn void(&mut self, lookups: impl IntoIterator<Item = Lookup>) {
        for lookup in lookups {
            if !self.voids.insert(lookup) {
                continue;
            }
            let Some(&Spend { workspace, credits, epoch }) = self.spends.get(&lookup) else { continue };
            match epoch.and_then(|epoch| self.leases.get_mut(&(workspace, epoch))) {
                Some(lease) => lease.spent -= credits,
                None => self.workspace_mut(workspace).spent -= credits,
            }
        }
    }
}
