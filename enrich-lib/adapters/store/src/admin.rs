//! Administrative operations on workspaces, keys and credits.

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::window::Quota;

use crate::error::StoreError;
use crate::records::{Audit, KeyRow, WorkspaceRow};

/// Administrative operations of a store. They can run while servers use the same data.
///
/// Each operation is atomic. A cancelled call may or may not have taken effect.
#[async_trait]
pub trait Admin: Send {
    /// Creates a workspace with `credits`.
    ///
    /// Errors: [`StoreError::WorkspaceExists`], [`StoreError::Account`] if `credits` is too large.
    async fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Returns all workspaces, by name.
    async fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, StoreError>;

    /// Grants `credits` to `workspace` and returns its new balance.
    ///
    /// Errors: [`StoreError::UnknownWorkspace`], [`StoreError::Account`] if the sum is too large.
    async fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, StoreError>;

    /// Returns the balance of `workspace`. The held credits are up to one second old.
    async fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, StoreError>;

    /// Stores a new key of `workspace` and returns its id.
    async fn create_key(
        &mut self,
        workspace: &WorkspaceId,
        label: &str,
        key: &ApiKey,
        now: Timestamp,
    ) -> Result<String, StoreError>;

    /// Returns the keys of `workspace`, oldest first.
    async fn keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<KeyRow>, StoreError>;

    /// Revokes a key permanently. A key that is already revoked keeps its first revocation date.
    async fn revoke_key(&mut self, id: &str, now: Timestamp) -> Result<(), StoreError>;

    /// Adds up all rows in one snapshot and compares them with the totals.
    async fn audit(&mut self) -> Result<Audit, StoreError>;
}
