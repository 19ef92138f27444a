//! Operator commands. They work while another process serves the same data.

use std::num::NonZeroI64;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use enrich_lib::credit::Balance;
use enrich_lib::key::KeyId;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::window::Quota;
use enrich_store::accounts::Accounts;
use enrich_store::records::{Audit, KeyRow, NewKey, WorkspaceRow};
use enrich_store::usage::Day;
use enrich_store::{Actor, StoreError};

use super::dir::DataDir;
use super::engine::accounts;
use crate::error::SqliteError;

/// The accounts of a data directory, for callers without an async runtime. Dereferences to [`Accounts`] for
/// all operations.
#[derive(Debug)]
pub struct BlockingAccounts(Accounts);

impl BlockingAccounts {
    /// Opens the accounts of `dir` and creates them if they do not exist.
    pub fn open(dir: &DataDir) -> Result<Self, SqliteError> {
        accounts(dir).map(Self)
    }

    /// Calls [`Accounts::create_workspace`].
    pub fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), SqliteError> {
        complete(self.0.create_workspace(id, quota, credits, now))
    }

    /// Calls [`Accounts::workspaces`].
    pub fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, SqliteError> {
        complete(self.0.workspaces())
    }

    /// Calls [`Accounts::workspace`].
    pub fn workspace(&mut self, id: &WorkspaceId) -> Result<WorkspaceRow, SqliteError> {
        complete(self.0.workspace(id))
    }

    /// Calls [`Accounts::grant`].
    pub fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, SqliteError> {
        complete(self.0.grant(workspace, credits, now))
    }

    /// Calls [`Accounts::adjust`].
    pub fn adjust(
        &mut self,
        workspace: &WorkspaceId,
        credits: NonZeroI64,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Balance, SqliteError> {
        complete(self.0.adjust(workspace, credits, reason, actor))
    }

    /// Calls [`Accounts::balance`].
    pub fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, SqliteError> {
        complete(self.0.balance(workspace))
    }

    /// Calls [`Accounts::create_key`].
    pub fn create_key(&mut self, key: &NewKey<'_>, actor: &Actor<'_>) -> Result<KeyId, SqliteError> {
        complete(self.0.create_key(key, actor))
    }

    /// Calls [`Accounts::keys`].
    pub fn keys(&mut self, workspace: &WorkspaceId, today: Day) -> Result<Vec<KeyRow>, SqliteError> {
        complete(self.0.keys(workspace, today))
    }

    /// Calls [`Accounts::revoke_key`].
    pub fn revoke_key(&mut self, id: KeyId, actor: &Actor<'_>) -> Result<(), SqliteError> {
        complete(self.0.revoke_key(id, actor))
    }

    /// Calls [`Accounts::audit`].
    pub fn audit(&mut self) -> Result<Audit, SqliteError> {
        complete(self.0.audit())
    }
}

impl Deref for BlockingAccounts {
    type Target = Accounts;

    fn deref(&self) -> &Accounts {
        &self.0
    }
}

impl DerefMut for BlockingAccounts {
    fn deref_mut(&mut self) -> &mut Accounts {
        &mut self.0
    }
}

/// Runs an operation on SQLite, which blocks and never waits for another task.
pub(crate) fn complete<T>(operation: impl Future<Output = Result<T, StoreError>>) -> Result<T, SqliteError> {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Ok(done?),
        Poll::Pending => unreachable!("SQLite completes each operation at once"),
    }
}
