//! Errors of a store. No message contains an email, a key or a password.

use std::error::Error;
use std::time::Duration;

use enrich_lib::credit::AccountError;
use enrich_lib::key::KeyId;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::refusal::PortError;
use enrich_lib::window::QuotaError;
use thiserror::Error;

use crate::number::grouped;

/// An error of a store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No workspace has this name.
    #[error("there is no workspace {0}")]
    UnknownWorkspace(WorkspaceId),
    /// A workspace with this name already exists.
    #[error("there is already a workspace {0}")]
    WorkspaceExists(WorkspaceId),
    /// The name of this workspace differs only in case.
    #[error("there is already a workspace {0}, whose name differs only in case; choose another name")]
    WorkspaceCase(WorkspaceId),
    /// Names with this start are reserved.
    #[error("names that begin with `console.`, such as {0}, are reserved; choose another name")]
    WorkspaceReserved(WorkspaceId),
    /// The workspace was deleted. It can be read, but not changed.
    #[error("the workspace {0} was deleted; create one with another name")]
    WorkspaceDeleted(WorkspaceId),
    /// The burst limit is invalid.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// Fewer credits are available than an adjustment would withdraw.
    #[error("{}", overdrawn(*available))]
    Overdrawn {
        /// The credits that are not spent and, on PostgreSQL, not held.
        available: u64,
    },
    /// Credits could not be returned to a workspace for seconds.
    #[error(
        "credits could not be returned to workspace {workspace} for {} s, because another session of PostgreSQL has locked its \
         balance; end its transaction", .age.as_secs()
    )]
    NotReturned {
        /// The workspace.
        workspace: String,
        /// The time since the first attempt that found it locked.
        age: Duration,
    },
    /// The clock of this machine differs too much from that of the server.
    #[error("the clock of this machine is {difference} s {direction} that of the database; synchronize both")]
    WrongClock {
        /// The difference in seconds.
        difference: u64,
        /// `ahead of` or `behind`.
        direction: &'static str,
    },
    /// No spend has this lookup id.
    #[error("there is no spend of {0}; only a billed lookup whose spend was not removed can be refunded")]
    UnknownSpend(LookupId),
    /// The spend was refunded before.
    #[error("{lookup_id} was already refunded")]
    AlreadyRefunded {
        /// The lookup.
        lookup_id: LookupId,
        /// When it was refunded.
        at: Timestamp,
    },
    /// No key has this id.
    #[error("there is no key with the id {0}")]
    UnknownKey(KeyId),
    /// The workspace has [`KEYS_MAX`](crate::records::KEYS_MAX) keys.
    #[error("{0} has the maximum number of keys; revoke one that is not needed")]
    TooManyKeys(WorkspaceId),
    /// The workspace has [`USERS_MAX`](crate::users::USERS_MAX) users and open links.
    #[error("{0} has the maximum number of users and open invitations; remove one that is not needed")]
    TooManyUsers(WorkspaceId),
    /// The key is disabled, has expired or was revoked.
    #[error("{0} is not active; create another key")]
    KeyEnded(KeyId),
    /// The form that creates the key has created one before.
    #[error("the form was sent before, and created a key then; create a key with a new form")]
    FormUsed,
    /// The workspace has no user with this email or number.
    #[error("there is no such user")]
    UnknownUser,
    /// The author's session has ended, or the role no longer allows the change.
    #[error("the session has ended, or the role no longer allows this change")]
    NotAllowed,
    /// The user is a member of the workspace already.
    #[error("the user is already a member of {0}")]
    AlreadyMember(WorkspaceId),
    /// The workspace would have no admin.
    #[error("{0} needs at least one admin; make another member an admin first")]
    LastAdmin(WorkspaceId),
    /// The account rejected the operation.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The schema of this file or database is newer than this program.
    #[error("{0} was written by a newer version of this program; use that version, or restore a backup")]
    NewerSchema(String),
    /// The spend was not committed, for this reason.
    #[error("the spend was not committed: {0}")]
    NotCommitted(String),
    /// The store cannot write at the moment, for this reason.
    #[error("the store cannot write: {0}")]
    Unwritable(String),
    /// The spend waited too long for its turn, and was withdrawn.
    #[error("the spend was withdrawn, because earlier spends were not committed in time")]
    Withdrawn,
    /// The writer has ended.
    #[error("the store has stopped writing")]
    Stopped,
    /// A column has a value that is not valid, for this reason.
    #[error("a column has an unexpected value: {0}")]
    Column(String),
    /// Another transaction changed the same data, and nothing was changed.
    #[error("the change conflicted with another one, and nothing was changed; try again")]
    Conflict,
    /// The backend failed. The source is the error type of the store's crate.
    #[error(transparent)]
    Backend(Box<dyn Error + Send + Sync>),
}

impl StoreError {
    /// Returns the error of the backend, if it has type `E`.
    pub fn backend<E: Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Backend(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

fn overdrawn(available: u64) -> String {
    match available {
        1 => "only 1 credit is available".to_owned(),
        _ => format!("only {} credits are available", grouped(available)),
    }
}

impl From<StoreError> for PortError {
    fn from(error: StoreError) -> Self {
        Self::new(error)
    }
}
