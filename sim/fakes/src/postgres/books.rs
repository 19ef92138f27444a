//! What the functions of the PostgreSQL adapter's migrations do, in Rust: a model, and the books of the fake.
//!
//! A test makes the same random calls of both and compares what they tell (`tests/tests/postgres_model.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A lookup's id, as the column has it.
pub type Lookup = [u8; 16];

/// The books of all workspaces. Times are in milliseconds, by the server's clock.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// By rowid, from 1.
    workspaces: Vec<Workspace>,
    keys: Vec<Key>,
    /// By epoch.
    nodes: BTreeMap<i64, Node>,
    epochs: i64,
    /// By workspace and epoch.
    leases: BTreeMap<(i64, i64), Lease>,
    spends: BTreeMap<Lookup, Spend>,
    voids: BTreeSet<Lookup>,
    revision: i64,
    notifications: u64,
}

/// A workspace, and its totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workspace {
    /// Its name.
    pub id: String,
    /// The most requests in a window.
    pub quota_limit: i64,
    /// The length of a window.
    pub window_seconds: i32,
    /// All credits that it was ever given.
    pub granted: i64,
    /// What finished lookups cost, but for those that leases have paid that still run.
    pub spent: i64,
    /// What nodes have taken and not returned.
    pub leased: i64,
}

#[derive(Clone, Debug)]
struct Key {
    digest: Vec<u8>,
    workspace: i64,
    is_revoked: bool,
}

/// A node that came, and was not ended yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it calls itself.
    pub name: String,
    /// When it ends if it is not heard of, by the server's clock.
    pub ends_at: i64,
}

/// What a node has taken of a workspace's credits. The counters only grow, but for a spend that is voided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// All that it took.
    pub taken: i64,
    /// What of it was given back.
    pub returned: i64,
    /// What of it was spent.
    pub spent: i64,
    /// What lookups hold of it, for showing.
    pub held: i64,
    /// How often others asked for what is idle of it.
    pub recalled: i64,
    /// Up to which of these it has answered.
    pub answered: i64,
}

#[derive(Clone, Debug)]
struct Spend {
    workspace: i64,
    credits: i64,
    epoch: Option<i64>,
}

/// A live key, and its workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFound<'a> {
    /// The key's rowid.
    pub rowid: i64,
    /// Whose it is.
    pub workspace: &'a Workspace,
}

/// What a beat tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// Whether the epoch goes on.
    pub lives: bool,
    /// Changes with keys and quotas.
    pub revision: i64,
    /// The workspaces whose idle credits others want.
    pub recalls: Vec<Recall>,
}

/// Others want what is idle of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// The workspace's name.
    pub name: String,
    /// The workspace's rowid.
    pub workspace: i64,
    /// All that the node took of it.
    pub taken: i64,
    /// The recall's number.
    pub number: i64,
}

/// What a node wants to take.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// All that it knows to have taken.
    pub known: i64,
    /// What it needs at once.
    pub needs: i64,
    /// What it would like to have, if there is enough for all.
    pub wants: i64,
    /// Whether others were asked before.
    pub again: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// The epoch has ended.
    Ended,
    /// There is no such workspace.
    Unknown,
    /// The node has taken so much in all.
    Taken(Slice),
    /// Other nodes may have idle credits, and were told.
    Recalled(Slice),
    /// There are too few credits, and no node has idle ones.
    Short(Slice),
}

/// A lease, after a taking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The workspace's rowid.
    pub workspace: i64,
    /// All that the node took of it.
    pub taken: i64,
}

/// One of many that are settled together.
#[derive(Clone, Copy, Debug)]
pub struct Settling {
    /// Of the lease that is to pay.
    pub epoch: i64,
    /// The workspace's rowid.
    pub workspace: i64,
    /// Which lookup.
    pub lookup: Lookup,
    /// What it costs.
    pub cost: i64,
}

/// A constraint of the schema does not hold: the call changed nothing.
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
    /// What is left of it.
    pub fn left(&self) -> i64 {
        self.taken - self.returned - self.spent
    }

    fn check(&self) -> Result<(), Violation> {
        let fits = self.returned >= 0 && self.spent >= 0 && self.left() >= 0;
        if fits { Ok(()) } else { Err(Violation("nothing_is_spent_but_what_was_taken")) }
    }
}

impl Workspace {
    /// What no lookup has cost and no node has.
    pub fn free(&self) -> i64 {
        self.granted - self.spent - self.leased
    }

    fn check(&self) -> Result<(), Violation> {
        let fits = self.spent >= 0 && self.leased >= 0 && self.free() >= 0;
        if fits { Ok(()) } else { Err(Violation("nothing_is_spent_twice")) }
    }
}

/// What an operator does.
impl Books {
    /// Makes a workspace and tells its rowid.
    pub fn create_workspace(&mut self, workspace: Workspace) -> i64 {
        self.workspaces.push(workspace);
        self.workspaces.len() as i64
    }

    /// Files a key.
    pub fn create_key(&mut self, workspace: i64, digest: &[u8]) {
        self.keys.push(Key { digest: digest.to_vec(), workspace, is_revoked: false });
    }

    /// Revokes a key, for nodes to notice.
    pub fn revoke_key(&mut self, digest: &[u8]) {
        self.keys.iter_mut().filter(|key| key.digest == digest).for_each(|key| key.is_revoked = true);
        self.revision += 1;
        self.notifications += 1;
    }

    /// Gives a workspace more credits.
    pub fn grant(&mut self, workspace: i64, credits: i64) {
        self.workspace_mut(workspace).granted += credits;
    }

    /// The workspaces, by rowid from 1.
    pub fn workspaces(&self) -> &[Workspace] {
        &self.workspaces
    }

    /// The leases, by workspace and epoch.
    pub fn leases(&self) -> &BTreeMap<(i64, i64), Lease> {
        &self.leases
    }

    /// The nodes, by epoch.
    pub fn nodes(&self) -> &BTreeMap<i64, Node> {
        &self.nodes
    }

    /// How often all who listen were told that something has changed.
    pub fn notifications(&self) -> u64 {
        self.notifications
    }

    /// What stands of a lookup's spend, in credits.
    pub fn spent_by(&self, lookup: &Lookup) -> Option<i64> {
        self.spends.get(lookup).filter(|_| !self.voids.contains(lookup)).map(|spend| spend.credits)
    }

    /// The spends that stand, by lookup: of which workspace, and how many credits.
    pub fn standing(&self) -> impl Iterator<Item = (&Lookup, i64, i64)> {
        let spends = self.spends.iter().filter(|(lookup, _)| !self.voids.contains(*lookup));
        spends.map(|(lookup, spend)| (lookup, spend.workspace, spend.credits))
    }

    /// Whether a lookup's spend was made or taken back.
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

/// What a node does. Each is one transaction: it fails as a whole.
impl Books {
    /// The workspace of a live key.
    pub fn find_key(&self, digest: &[u8]) -> Option<KeyFound<'_>> {
        let at = self.keys.iter().position(|key| key.digest == digest && !key.is_revoked)?;
        Some(KeyFound { rowid: at as i64 + 1, workspace: self.workspace(self.keys[at].workspace) })
    }

    /// `node_begin`
    pub fn node_begin(&mut self, name: &str, ttl_ms: i64, now: i64) -> i64 {
        self.epochs += 1;
        self.nodes.insert(self.epochs, Node { name: name.to_owned(), ends_at: now + ttl_ms });
        self.epochs
    }

    /// `node_beat`
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

    /// `node_leave`
    pub fn node_leave(&mut self, epoch: i64, now: i64) {
        if let Some(node) = self.nodes.get_mut(&epoch) {
            node.ends_at = now.min(node.ends_at);
        }
    }

    /// `nodes_end`
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

    /// `lease_take`
    pub fn lease_take(
        &mut self,
        epoch: i64,
        workspace: &str,
        wish: Wish,
        now: i64,
    ) -> Result<Taking, Violation> {
        if self.nodes.get(&epoch).is_none_or(|node| node.ends_at <= now) {
            return Ok(Taking::Ended);
        }
        let Some(at) = self.workspaces.iter().position(|w| w.id == workspace) else {
            return Ok(Taking::Unknown);
        };
        let workspace = at as i64 + 1;
        let free = self.workspaces[at].free();
        let lease = self.leases.entry((workspace, epoch)).or_default();
        if lease.taken > wish.known {
            return Ok(Taking::Taken(Slice { workspace, taken: lease.taken }));
        }
        if free >= wish.needs {
            let nodes = self.nodes.values().filter(|node| node.ends_at > now).count() as i64;
            let slice = wish.needs.max(wish.wants.min(free / (2 * nodes)));
            let taken = Lease { taken: lease.taken + slice, ..lease.clone() };
            taken.check()?;
            *lease = taken;
            let taken = lease.taken;
            self.workspaces[at].leased += slice;
            return Ok(Taking::Taken(Slice { workspace, taken }));
        }
        let slice = Slice { workspace, taken: lease.taken };
        let may_give = self.recall(workspace, epoch, wish.again, now);
        Ok(if may_give { Taking::Recalled(slice) } else { Taking::Short(slice) })
    }

    /// Whether nodes other than `epoch` may have idle credits of `workspace`. They are told of it the first time.
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

    /// `lease_return`
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

    /// `lease_show`
    pub fn lease_show(&mut self, epoch: i64, holds: impl IntoIterator<Item = (i64, i64)>) {
        for (workspace, held) in holds {
            if let Some(lease) = self.leases.get_mut(&(workspace, epoch)) {
                lease.held = held;
            }
        }
    }

    /// The view `account`, but for what is held: granted, spent, and what is left of the leases.
    pub fn account(&self, workspace: i64) -> [i64; 3] {
        let leases = self.leases.iter().filter(|((of, _), _)| *of == workspace);
        let spent: i64 = leases.map(|(_, lease)| lease.spent).sum();
        let books = self.workspace(workspace);
        [books.granted, books.spent + spent, books.leased - spent]
    }

    /// What a workspace was granted and has spent, and what nodes other than `epoch` show as held.
    pub fn balance(&self, workspace: &str, epoch: i64) -> Option<[i64; 3]> {
        let at = self.workspaces.iter().position(|w| w.id == workspace)?;
        let others = self.leases.iter().filter(|((of, other), _)| *of == at as i64 + 1 && *other != epoch);
        let held = others.map(|(_, lease)| lease.held.min(lease.left())).sum();
        let [granted, spent, _] = self.account(at as i64 + 1);
        Some([granted, spent, held])
    }

    /// `settle`: of each whether it stands, or nothing if its lease can't pay it.
    pub fn settle(&mut self, batch: &[Settling]) -> Result<Vec<Option<bool>>, Violation> {
        let fresh = self.fresh(batch);
        // Those of one lease together, if it can pay them all.
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

    /// `charge`: of each whether it stands.
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

    /// Those of `batch` that were neither spent nor voided before, by their lookups.
    fn fresh(&self, batch: &[Settling]) -> Vec<Settling> {
        let mut fresh: BTreeMap<Lookup, Settling> = BTreeMap::new();
        for settling in batch {
            if !self.spends.contains_key(&settling.lookup) && !self.voids.contains(&settling.lookup) {
                fresh.entry(settling.lookup).or_insert(*settling);
            }
        }
        fresh.into_values().collect()
    }

    /// `void`
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
