//! The rows of the tables, and the arguments and results of the SQL functions.

use std::fmt;

/// A lookup id as stored in its column.
pub type Lookup = [u8; 16];

/// A workspace and its total credits.
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
pub(super) struct Key {
    pub(super) digest: Vec<u8>,
    pub(super) workspace: i64,
    pub(super) is_revoked: bool,
    /// The revision of its last change.
    pub(super) revised: i64,
}

/// A registered node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The node's name.
    pub name: String,
    /// When the node expires without a heartbeat, by the server's clock.
    pub expires_at: i64,
}

/// A node's lease of a workspace's credits. The counters only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Greater than that of an earlier lease of the same node and workspace.
    pub number: i64,
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
pub(super) struct Spend {
    pub(super) workspace: i64,
    pub(super) credits: i64,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// True if the session is still active.
    pub is_active: bool,
    /// A number that changes with every change to keys and quotas.
    pub revision: i64,
}

/// A request of other nodes for the idle credits of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recall {
    /// The workspace's name.
    pub name: String,
    /// The workspace's row id.
    pub workspace: i64,
    /// The number of the lease.
    pub lease: i64,
    /// The total credits that the node has leased from the workspace.
    pub taken: i64,
    /// The number of the recall.
    pub number: i64,
}

/// A lease request.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest {
    /// The number of the lease.
    pub number: i64,
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
    /// The session or the lease has ended.
    Ended,
    /// The workspace does not exist.
    Unknown,
    /// Credits were leased.
    Taken(LeaseTotal),
    /// Other nodes may have idle credits and were asked to return them.
    Recalled(LeaseTotal),
    /// The credits do not suffice, and no other node has idle ones.
    Short(LeaseTotal),
}

/// The total of a lease after a lease request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTotal {
    /// The workspace's row id.
    pub workspace: i64,
    /// The total credits that the node has leased from the workspace.
    pub taken: i64,
}

/// A return of credits.
#[derive(Clone, Copy, Debug)]
pub struct ReturnRequest {
    /// The workspace's row id.
    pub workspace: i64,
    /// The number of the lease.
    pub number: i64,
    /// The total credits returned, or `None` to end the lease.
    pub returned: Option<i64>,
    /// The last recall that the return answers.
    pub seen: i64,
}

/// One spend of a batch.
#[derive(Clone, Copy, Debug)]
pub struct SpendRequest {
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
    pub fn remaining(&self) -> i64 {
        self.taken - self.returned - self.spent
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        let fits = self.returned >= 0 && self.spent >= 0 && self.remaining() >= 0;
        if fits { Ok(()) } else { Err(Violation("spent_and_returned_within_taken")) }
    }
}

impl Workspace {
    /// Returns the credits that are neither spent nor leased.
    pub fn free(&self) -> i64 {
        self.granted - self.spent - self.leased
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        let fits = self.spent >= 0 && self.leased >= 0 && self.free() >= 0;
        if fits { Ok(()) } else { Err(Violation("spent_and_leased_within_granted")) }
    }
}
