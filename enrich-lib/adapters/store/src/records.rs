//! Rows for operators: workspaces, keys and credits, independent of the store.

use enrich_lib::credit::Balance;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use thiserror::Error;

use crate::text::is_visible;
use crate::token::TokenDigest;
use crate::workspace::WorkspaceProperties;

/// A workspace in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceRow {
    /// Its name.
    pub id: WorkspaceId,
    /// The properties that an operator can change.
    pub properties: WorkspaceProperties,
    /// Its credits.
    pub balance: Balance,
    /// When it was created.
    pub created_at: Timestamp,
}

/// An API key to create.
#[derive(Clone, Copy, Debug)]
pub struct NewKey<'a> {
    /// The workspace.
    pub workspace: &'a WorkspaceId,
    /// The label, such as the integration's name.
    pub label: &'a str,
    /// The key. The store keeps its digest.
    pub key: &'a ApiKey,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// The digest of a random number of the form that creates it. A form creates one key.
    pub form: Option<&'a TokenDigest>,
}

impl<'a> NewKey<'a> {
    /// Creates a key that does not expire.
    pub const fn new(workspace: &'a WorkspaceId, label: &'a str, key: &'a ApiKey) -> Self {
        Self { workspace, label, key, expires_at: None, form: None }
    }
}

/// The maximum number of keys of a workspace that have neither expired nor been revoked.
pub const KEYS_MAX: u32 = 500;

/// The maximum length of a key's label, in characters.
pub const LABEL_CHARS_MAX: usize = 100;

/// Returns a key's label without surrounding spaces, or `None` if it is empty, too long or has characters
/// that are not visible, such as line breaks.
pub fn label(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_valid = (1..=LABEL_CHARS_MAX).contains(&text.chars().count()) && is_visible(text);
    is_valid.then_some(text)
}

/// An API key in a list, without its plaintext.
#[derive(Clone, derive_more::Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its public id.
    pub id: KeyId,
    /// The label that its owner gave it.
    pub label: String,
    /// Its first characters.
    pub masked: String,
    /// The name of the [`Actor`](crate::Actor) who created it, or the first key that it replaces.
    #[debug(skip)]
    pub created_by: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last used. Written at most once a minute.
    pub last_used_at: Option<Timestamp>,
    /// The number of lookups with it in the last [`USES_DAYS`](crate::usage::USES_DAYS) days.
    pub uses: u64,
    /// When it expires, or expired.
    pub expires_at: Option<Timestamp>,
    /// The expiry that it was created with, which a rotation may have shortened.
    pub initial_expires_at: Option<Timestamp>,
    /// When it was disabled, if it is disabled.
    pub disabled_at: Option<Timestamp>,
    /// The name of the [`Actor`](crate::Actor) who disabled it, if it is disabled.
    #[debug(skip)]
    pub disabled_by: Option<String>,
    /// When it was revoked, or its workspace was deleted.
    pub revoked_at: Option<Timestamp>,
}

/// Whether a key is usable. All other states are the same 401 for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It is usable.
    Active,
    /// It was disabled and can be enabled again.
    Disabled,
    /// It has expired.
    Expired,
    /// It was revoked permanently.
    Revoked,
}

impl KeyState {
    /// Returns the name of the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl KeyRow {
    /// Returns whether it is a test key.
    pub fn is_test(&self) -> bool {
        ApiKey::is_test(&self.masked)
    }

    /// Returns whether `name`, who is not an admin, may enable it: only who has disabled a key may.
    pub fn can_be_enabled_by(&self, name: &str) -> bool {
        self.disabled_at.is_none() || self.disabled_by.as_deref() == Some(name)
    }

    /// Returns whether `name` can disable it: it is active, or its creator has disabled it and could enable it again.
    pub fn can_be_disabled_by(&self, name: &str) -> bool {
        let by_creator = self.disabled_by.as_ref() == Some(&self.created_by);
        self.disabled_at.is_none() || by_creator && name != self.created_by
    }

    /// Returns whether a rotation shortened its life.
    pub fn is_replaced(&self) -> bool {
        self.expires_at != self.initial_expires_at
    }

    /// Returns when it expires if it is rotated with a grace period that ends at `grace_end`.
    pub fn expiry_after_rotation(&self, grace_end: Timestamp) -> Timestamp {
        self.expires_at.map_or(grace_end, |at| at.min(grace_end))
    }

    /// Returns the state of the key at `now`.
    pub fn state(&self, now: Timestamp) -> KeyState {
        if self.revoked_at.is_some() {
            KeyState::Revoked
        } else if self.expires_at.is_some_and(|expires_at| expires_at <= now) {
            KeyState::Expired
        } else if self.disabled_at.is_some() {
            KeyState::Disabled
        } else {
            KeyState::Active
        }
    }
}

/// A change of the granted credits. The changes of a workspace add up to its granted credits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    /// Its kind.
    pub kind: GrantKind,
    /// The number of credits. Negative only for an adjustment.
    pub credits: i64,
    /// The reason that the operator stated. Empty for a grant.
    pub reason: String,
    /// When the credits were granted.
    pub at: Timestamp,
}

/// The kind of a [`GrantRow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantKind {
    /// Credits that were granted.
    Grant,
    /// A correction.
    Adjustment,
    /// The credits of a lookup, which stay spent.
    Refund(LookupId),
}

impl GrantKind {
    /// Returns the name of the kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Adjustment => "adjustment",
            Self::Refund(_) => "refund",
        }
    }

    /// Creates the kind from its name, and the lookup of a refund.
    ///
    /// Errors: [`GrantKindError`].
    pub fn from_columns(name: &str, lookup_id: Option<LookupId>) -> Result<Self, GrantKindError> {
        match (name, lookup_id) {
            ("grant", None) => Ok(Self::Grant),
            ("adjustment", None) => Ok(Self::Adjustment),
            ("refund", Some(lookup_id)) => Ok(Self::Refund(lookup_id)),
            _ => Err(GrantKindError),
        }
    }

    /// Returns the refunded lookup.
    pub const fn lookup_id(self) -> Option<LookupId> {
        match self {
            Self::Refund(lookup_id) => Some(lookup_id),
            Self::Grant | Self::Adjustment => None,
        }
    }
}

/// The reason why columns are not a [`GrantKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected `grant`, `adjustment`, or `refund` with a lookup")]
pub struct GrantKindError;

/// A spend in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendRow {
    /// The lookup that was charged.
    pub lookup_id: LookupId,
    /// The key of the request.
    pub key: KeyId,
    /// The number of credits.
    pub credits: u64,
    /// When the lookup arrived.
    pub at: Timestamp,
    /// When the credits were refunded.
    pub refunded_at: Option<Timestamp>,
}

/// A part of a list of spends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendPage {
    /// Spends, oldest first. There may be none although there is a next page.
    pub rows: Vec<SpendRow>,
    /// Where the next page begins. `None` if this is the last one.
    pub next: Option<LookupId>,
}

impl SpendPage {
    /// The maximum number of spends of all workspaces that are read for a page. Spends have no index by
    /// workspace.
    pub const SPENDS_READ_MAX: u32 = 10_000;
}

/// The maximum number of rows that one operation removes, so that servers never wait for it for long.
pub const REMOVED_MAX: u64 = 1_000;

/// A refunded spend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refund {
    /// The workspace of the lookup.
    pub workspace: WorkspaceId,
    /// The number of credits.
    pub credits: u64,
    /// The new balance of the workspace.
    pub balance: Balance,
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
    format!("the trigger {name} is missing or disabled, and the accounts depend on it")
}

/// The totals of a workspace and the sums of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its name.
    pub id: WorkspaceId,
    /// Its grants.
    pub granted: Tally,
    /// Its spends.
    pub spent: Tally,
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
    /// Returns `true` if the totals equal the sums of the rows, and no more is spent than granted.
    pub fn reconciles(&self) -> bool {
        let is_covered = self.spent.rows <= self.granted.rows;
        is_covered && [self.granted, self.spent].iter().all(Tally::agrees)
    }
}

impl Tally {
    /// Returns `true` if both sources agree.
    pub fn agrees(&self) -> bool {
        self.total == self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Actor;
    use crate::users::{Link, LinkPurpose, Session, UserId};

    #[test]
    fn debug_output_hides_emails_and_clients() {
        const EMAIL: &str = "ada@example.com";
        let (at, digest) = (Timestamp::default(), TokenDigest::from_token(b"token"));
        let address = Some([192, 0, 2, 7].into());
        let link = Link {
            digest,
            workspace: "demo".parse().unwrap(),
            purpose: LinkPurpose::Reset,
            email: EMAIL.parse().unwrap(),
            created_by: EMAIL.to_owned(),
            created_at: at,
            expires_at: at,
        };
        let session = Session {
            digest,
            user: UserId(1),
            created_at: at,
            authenticated_at: at,
            last_seen_at: at,
            address,
            user_agent: "curl/8".to_owned(),
        };
        let key = KeyRow {
            id: KeyId::from_number(1),
            label: "shop".to_owned(),
            masked: "ek_…".to_owned(),
            created_by: EMAIL.to_owned(),
            created_at: at,
            last_used_at: None,
            uses: 0,
            expires_at: None,
            initial_expires_at: None,
            disabled_at: Some(at),
            disabled_by: Some(EMAIL.to_owned()),
            revoked_at: None,
        };
        let actor = Actor { name: EMAIL, address, now: at, authority: None };
        let shown = format!("{actor:?} {link:?} {session:?} {key:?}");
        assert!(!["ada", "192.0.2.7", "curl"].iter().any(|text| shown.contains(text)), "{shown}");
    }
}
