//! A user to change.

use enrich_lib::model::WorkspaceId;

use super::lock::{lock, lock_live};
use super::transaction::Tx;
use crate::actor::Actor;
use crate::error::StoreError;
use crate::users::{Role, UserEmail, UserId};
use crate::value::values;

/// A user whose workspace is locked.
pub(super) struct Member {
    /// The row of the workspace.
    pub(super) workspace: i64,
    pub(super) email: UserEmail,
    pub(super) role: Role,
}

impl Member {
    /// Locks the workspace of a user.
    ///
    /// Errors: [`StoreError::UnknownUser`].
    pub(super) async fn lock(tx: &mut Tx<'_>, user: UserId) -> Result<Self, StoreError> {
        let update = "UPDATE workspace SET revised = revised + 1
             WHERE rowid = (SELECT workspace FROM member WHERE rowid = $1) RETURNING rowid";
        let workspace = tx.row(update, values![user]).await?.ok_or(StoreError::UnknownUser)?.read()?;
        Self::read(tx, workspace, user).await
    }

    /// Locks this workspace. Only the operator changes users of a deleted workspace.
    ///
    /// Errors: [`StoreError::UnknownUser`] if the user belongs to another one.
    pub(super) async fn lock_in(
        tx: &mut Tx<'_>,
        workspace: &WorkspaceId,
        user: UserId,
        actor: &Actor<'_>,
    ) -> Result<Self, StoreError> {
        let workspace =
            if actor.is_operator() { lock(tx, workspace).await? } else { lock_live(tx, workspace).await? };
        Self::read(tx, workspace, user).await
    }

    async fn read(tx: &mut Tx<'_>, workspace: i64, user: UserId) -> Result<Self, StoreError> {
        let select = "SELECT email, role FROM member WHERE workspace = $1 AND rowid = $2";
        let mut row = tx.row(select, values![workspace, user]).await?.ok_or(StoreError::UnknownUser)?;
        Ok(Self { workspace, email: row.read()?, role: row.read()? })
    }
}
