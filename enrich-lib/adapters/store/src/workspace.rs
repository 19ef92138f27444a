//! The properties of a workspace that an operator can change, and their changes.

use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::window::Quota;

use crate::action::Action;
use crate::error::StoreError;

/// The start of names that no workspace can have. The web application counts attempts and changes under such
/// names, in the store that counts the lookups of workspaces.
pub const RESERVED: &str = "console.";

/// The properties of a workspace that an operator can change. Its name is permanent: windows and the audit
/// log refer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceProperties {
    /// Its burst limit.
    pub quota: Quota,
    /// The name that people read, if it differs from the workspace's name.
    pub display_name: Option<String>,
    /// The number of available credits below which the server logs a warning. 0 for no warning.
    pub low_balance: u64,
    /// When it was suspended, if it is suspended.
    pub suspended_at: Option<Timestamp>,
    /// When it was deleted. A deleted workspace keeps its rows and its name for ever.
    pub deleted_at: Option<Timestamp>,
}

/// Whether the keys of a workspace are usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceState {
    /// They are usable.
    Active,
    /// They are refused with 401 until the workspace is resumed.
    Suspended,
    /// They are refused with 401 permanently.
    Deleted,
}

impl WorkspaceState {
    /// Returns the name of the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Deleted => "deleted",
        }
    }
}

/// A change of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceChange<'a> {
    /// Changes the parts of the burst limit that are `Some`. The event is `workspace.limit_changed`.
    Quota {
        /// The maximum number of requests in a window.
        limit: Option<u32>,
        /// The length of a window in seconds.
        window_seconds: Option<u32>,
    },
    /// Changes the threshold of the warning; 0 for no warning. The event is `workspace.low_balance_changed`.
    LowBalance(u64),
    /// Changes or removes the display name. The event is `workspace.renamed`.
    DisplayName(Option<&'a str>),
    /// Suspends or resumes the workspace. The event is `workspace.suspended` or `workspace.resumed`.
    Suspended(bool),
    /// Deletes the workspace permanently. The event is `workspace.deleted`.
    Deleted,
}

impl WorkspaceProperties {
    /// Creates the properties of a new workspace.
    pub const fn new(quota: Quota) -> Self {
        Self { quota, display_name: None, low_balance: 0, suspended_at: None, deleted_at: None }
    }

    /// Returns the state of the workspace.
    pub const fn state(&self) -> WorkspaceState {
        if self.deleted_at.is_some() {
            WorkspaceState::Deleted
        } else if self.suspended_at.is_some() {
            WorkspaceState::Suspended
        } else {
            WorkspaceState::Active
        }
    }

    /// Applies a change to the workspace `id` and returns its event: the action and the subject. Returns `None` if the
    /// properties stay the same.
    ///
    /// Errors: [`StoreError::WorkspaceDeleted`], [`StoreError::Quota`].
    pub fn apply(
        &mut self,
        id: &WorkspaceId,
        change: &WorkspaceChange<'_>,
        now: Timestamp,
    ) -> Result<Option<(Action, String)>, StoreError> {
        if self.deleted_at.is_some() {
            return Err(StoreError::WorkspaceDeleted(id.clone()));
        }
        let before = self.clone();
        let event = match *change {
            WorkspaceChange::Quota { limit, window_seconds } => {
                let window_seconds = window_seconds.unwrap_or(self.quota.window_seconds());
                self.quota = Quota::new(limit.unwrap_or(self.quota.limit()), window_seconds)?;
                let subject = format!("{} requests per {window_seconds} s", self.quota.limit());
                (Action::WorkspaceLimitChanged, subject)
            }
            WorkspaceChange::LowBalance(credits) => {
                self.low_balance = credits;
                (Action::WorkspaceLowBalanceChanged, credits.to_string())
            }
            WorkspaceChange::DisplayName(name) => {
                self.display_name = name.map(str::to_owned);
                (Action::WorkspaceRenamed, name.unwrap_or(id.as_str()).to_owned())
            }
            WorkspaceChange::Suspended(true) => {
                self.suspended_at.get_or_insert(now);
                (Action::WorkspaceSuspended, id.to_string())
            }
            WorkspaceChange::Suspended(false) => {
                self.suspended_at = None;
                (Action::WorkspaceResumed, id.to_string())
            }
            WorkspaceChange::Deleted => {
                self.deleted_at = Some(now);
                (Action::WorkspaceDeleted, id.to_string())
            }
        };
        Ok((*self != before).then_some(event))
    }
}
