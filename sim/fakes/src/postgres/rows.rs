//! The rows of the tables, and the arguments and results of the statements.

use std::collections::BTreeMap;
use std::fmt;

/// A lookup id as stored in its column.
pub type Lookup = [u8; 16];

/// A receipt as stored in its column.
pub type Receipt = [u8; 16];

/// The hash of an email as stored in its column.
pub type EmailHash = [u8; 16];

/// A workspace and its credits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workspace {
    /// The workspace's name.
    pub id: String,
    /// The maximum number of requests per window.
    pub quota_limit: i64,
    /// The length of a window, in seconds.
    pub window_seconds: i32,
    /// All credits granted.
    pub granted: i64,
    /// The credits that are not available: held, spent, or the rest of settlements.
    pub used: i64,
    /// True if its keys are refused.
    pub is_suspended: bool,
}

impl Workspace {
    /// Returns the credits that can be held.
    pub fn available(&self) -> i64 {
        self.granted - self.used
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Key {
    pub(super) digest: Vec<u8>,
    pub(super) workspace: i64,
    pub(super) is_test: bool,
    pub(super) is_revoked: bool,
    pub(super) is_disabled: bool,
    pub(super) expires_at: Option<i64>,
    /// The revision of its last change.
    pub(super) revision: i64,
}

impl Key {
    /// Returns whether it is neither revoked nor expired.
    pub(super) fn is_current(&self, now: i64) -> bool {
        !self.is_revoked && self.expires_at.is_none_or(|expires_at| expires_at > now)
    }
}

/// An active key and its workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFound<'a> {
    /// The key's row id.
    pub rowid: i64,
    /// Its digest.
    pub digest: &'a [u8],
    /// The key's workspace.
    pub workspace: &'a Workspace,
    /// When it ends.
    pub expires_at: Option<i64>,
    /// True if it is a test key.
    pub is_test: bool,
}

/// A person.
#[derive(Clone, Debug, PartialEq)]
pub struct Person {
    /// The certainty of the match, from 0 to 1.
    pub confidence: f64,
    /// The name in the profile's URL.
    pub profile: String,
}

/// Credits that a lookup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The workspace's row id.
    pub workspace: i64,
    /// The number of credits.
    pub credits: i64,
    /// When the hold expires, by the server's clock.
    pub expires_at: i64,
}

/// A committed spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spend {
    /// The workspace's row id.
    pub workspace: i64,
    /// The number of credits.
    pub credits: i64,
}

/// Settlements that are not returned or counted yet: spends, or a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// When it was committed, by the server's clock.
    pub settled_at: i64,
    /// The workspace's row id.
    pub workspace: i64,
    /// The number of spends.
    pub lookups: i64,
    /// The credits that were held and not spent.
    pub rest: i64,
}

/// A hold to place.
#[derive(Clone, Debug)]
pub struct HoldRequest {
    /// The lookup.
    pub lookup: Lookup,
    /// The workspace's name.
    pub workspace: String,
    /// The number of credits.
    pub credits: i64,
    /// How long the hold lasts, in milliseconds.
    pub ttl_ms: i64,
    /// The receipt of its request.
    pub receipt: Option<Receipt>,
}

/// The result of a batch of holds.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// The credits that were available to each workspace, by its name.
    pub available: BTreeMap<String, i64>,
    /// The credits that each hold takes: none if its receipt is spent.
    pub amounts: Vec<i64>,
    /// The sum of the amounts of the workspace's holds, up to this one.
    pub totals: Vec<i64>,
}

/// The result of a batch of settlements.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// The number of holds that have ended.
    pub ended: usize,
    /// The lookups that did not pay, and those that have paid for their receipts, unless they are gone.
    pub unpaid: Vec<(Lookup, Option<Lookup>)>,
}

/// A hold to end.
#[derive(Clone, Debug)]
pub struct SettleRequest {
    /// The lookup.
    pub lookup: Lookup,
    /// The workspace's name.
    pub workspace: String,
    /// The credits to spend.
    pub credits: i64,
    /// The day and the key, which group settlements.
    pub group: (i64, i64),
    /// The receipt of its request.
    pub receipt: Option<Receipt>,
}

/// A violated constraint of the schema. The statement had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(
    /// The constraint's name.
    pub &'static str,
);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the statement violates the constraint {}", self.0)
    }
}
