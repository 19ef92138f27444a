//! Rows for operators: workspaces, keys and credits, independent of the store.

use enrich_lib::credit::Balance;
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::window::Quota;

/// A workspace in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceRow {
    /// Its name.
    pub id: WorkspaceId,
    /// Its burst limit.
    pub quota: Quota,
    /// Its credits.
    pub balance: Balance,
    /// When it was created.
    pub created_at: Timestamp,
}

/// An API key in a list, without its plaintext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its public id: `key_` and 8 hex digits.
    pub id: String,
    /// The label that its owner gave it.
    pub label: String,
    /// Its first characters.
    pub masked: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last used, in whole seconds. Lags by up to a second, or by more if thousands of keys are used per second.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// The result of a store's consistency check, which reads all rows in one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// All workspaces, by name.
    pub workspaces: Vec<AuditRow>,
    /// All other inconsistencies of the store, one sentence each.
    pub errors: Vec<String>,
}

/// Returns the inconsistency of a missing trigger that makes a table append-only.
pub fn missing_trigger(name: &str) -> String {
    format!("the trigger {name} is missing; rows of its table can be changed")
}

/// The totals of a workspace and the sums of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its name.
    pub id: WorkspaceId,
    /// Its grants.
    pub granted: Tally,
    /// Its spends, without voided ones.
    pub spent: Tally,
    /// The credits leased to nodes. 0 in a store with a single node.
    pub leased: Tally,
}

/// A number of credits, from two sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The stored total.
    pub total: u64,
    /// The sum of the rows.
    pub rows: u64,
}

impl Audit {
    /// Returns `true` if no inconsistency was found.
    pub fn reconciles(&self) -> bool {
        self.errors.is_empty() && self.workspaces.iter().all(AuditRow::reconciles)
    }
}

impl AuditRow {
    /// Returns `true` if the totals equal the sums of the rows, and spent and leased credits together do not exceed granted
    /// credits.
    pub fn reconciles(&self) -> bool {
        let is_covered =
            u128::from(self.spent.rows) + u128::from(self.leased.rows) <= u128::from(self.granted.rows);
        is_covered && [self.granted, self.spent, self.leased].iter().all(Tally::agrees)
    }
}

impl Tally {
    /// Returns `true` if both sources agree.
    pub fn agrees(&self) -> bool {
        self.total == self.rows
    }
}

/// A workspace that is copied from one store to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedWorkspace {
    /// Its number in the source store. Its rows refer to it by this number.
    pub rowid: i64,
    /// Its name.
    pub id: WorkspaceId,
    /// Its burst limit.
    pub quota: Quota,
    /// When it was created.
    pub created_at: Timestamp,
    /// The number of its rows and their credits.
    pub contents: Contents,
}

/// The number of rows that a workspace has in a store, and the credits in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// API keys.
    pub keys: u64,
    /// Rows of grants.
    pub grants: u64,
    /// The credits in the grants.
    pub granted: u64,
    /// Rows of spends.
    pub spends: u64,
    /// The credits in the spends, without voided ones.
    pub spent: u64,
    /// Rows of voids.
    pub voids: u64,
}

/// An API key that is copied from one store to another. It stays valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedKey {
    /// The workspace, by [`CopiedWorkspace::rowid`].
    pub workspace: i64,
    /// The digest of the key.
    pub digest: KeyDigest,
    /// The other columns.
    pub row: KeyRow,
}

/// A grant that is copied from one store to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedGrant {
    /// Its number in the source store. The numbers increase.
    pub rowid: i64,
    /// The workspace, by [`CopiedWorkspace::rowid`].
    pub workspace: i64,
    /// The number of credits.
    pub credits: u64,
    /// When the credits were granted.
    pub at: Timestamp,
}

/// A spend or a void that is copied from one store to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedSpend {
    /// The lookup that was charged.
    pub lookup_id: LookupId,
    /// The workspace, by [`CopiedWorkspace::rowid`].
    pub workspace: i64,
    /// The number of credits.
    pub credits: u64,
    /// When the lookup arrived.
    pub at: Timestamp,
}
