//! What operators see of workspaces, keys and credits, whichever store has them. No lookup needs it.

use crate::credit::Balance;
use crate::key::KeyDigest;
use crate::model::{LookupId, Timestamp, WorkspaceId};
use crate::window::Quota;

/// A workspace in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceRow {
    /// Its name.
    pub id: WorkspaceId,
    /// Its burst limit.
    pub quota: Quota,
    /// Its credits.
    pub balance: Balance,
    /// When it was made.
    pub created_at: Timestamp,
}

/// An API key in a list: never the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its public id: `key_` and 8 hex digits.
    pub id: String,
    /// What its owner calls it.
    pub label: String,
    /// Its first characters.
    pub masked: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last used, to the second; up to a second late, or more where thousands of keys are used in a second.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// What a store found when it added up its rows, all of them read at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// All workspaces, by name.
    pub workspaces: Vec<AuditRow>,
    /// Whatever else is wrong with the store, a sentence each.
    pub faults: Vec<String>,
}

/// The totals of a workspace beside what its rows add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its name.
    pub id: WorkspaceId,
    /// Its grants.
    pub granted: Tally,
    /// Its spends, without those that were voided.
    pub spent: Tally,
    /// What nodes have leased; 0 in a store that has one node.
    pub leased: Tally,
}

/// One number, known in two ways. In credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As the running total says.
    pub total: u64,
    /// As the rows add up.
    pub rows: u64,
}

impl Audit {
    /// Whether all is as it should be.
    pub fn reconciles(&self) -> bool {
        self.faults.is_empty() && self.workspaces.iter().all(AuditRow::reconciles)
    }
}

impl AuditRow {
    /// Whether the totals are those of the rows, and no more is spent and leased than was granted.
    pub fn reconciles(&self) -> bool {
        let is_covered =
            u128::from(self.spent.rows) + u128::from(self.leased.rows) <= u128::from(self.granted.rows);
        is_covered && [self.granted, self.spent, self.leased].iter().all(Tally::agrees)
    }
}

impl Tally {
    /// Whether both ways come to the same.
    pub fn agrees(&self) -> bool {
        self.total == self.rows
    }
}

/// A workspace on its way from one store to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedWorkspace {
    /// Its number in the store that it comes from: its rows name it by that.
    pub rowid: i64,
    /// Its name.
    pub id: WorkspaceId,
    /// Its burst limit.
    pub quota: Quota,
    /// When it was made.
    pub created_at: Timestamp,
    /// What belongs to it.
    pub contents: Contents,
}

/// What a workspace has in a store: rows, and the credits in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// API keys.
    pub keys: u64,
    /// Rows of grants.
    pub grants: u64,
    /// The credits in them.
    pub granted: u64,
    /// Rows of spends.
    pub spends: u64,
    /// The credits in them, without those that were voided.
    pub spent: u64,
    /// Rows of voids.
    pub voids: u64,
}

/// An API key on its way from one store to another: it goes on working.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedKey {
    /// The workspace, by [`CopiedWorkspace::rowid`].
    pub workspace: i64,
    /// What its owner finds it by.
    pub digest: KeyDigest,
    /// The rest.
    pub row: KeyRow,
}

/// A grant on its way from one store to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedGrant {
    /// Its number in the store that it comes from. They grow.
    pub rowid: i64,
    /// The workspace, by [`CopiedWorkspace::rowid`].
    pub workspace: i64,
    /// How many credits.
    pub credits: u64,
    /// When.
    pub at: Timestamp,
}

/// A spend on its way from one store to another, or what took one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedSpend {
    /// The lookup that it pays for.
    pub lookup_id: LookupId,
    /// The workspace, by [`CopiedWorkspace::rowid`].
    pub workspace: i64,
    /// How many credits.
    pub credits: u64,
    /// When the lookup arrived.
    pub at: Timestamp,
}
