//! A user to change.

use enrich_lib::model::WorkspaceId;

use super::lock::{lock, lock_live};
use super::log;
use super::transaction::Tx;
use crate::actor::Actor;
use crate::error::StoreError;
use crate::users::{Role, User, UserEmail, UserId};
use crate::value::{Value, values};

/// A user whose workspace is locked.
pub(super) struct Member {
    /// The row of the workspace.
    pub(super) workspace: i64,
    pub(super) email: UserEmail,
    pub(super) role: Role,
}

/// The condition on the row of a user that the password and the second factor are those of [`verified`].
pub(super) const VERIFIED: &str = "rowid = $1 AND password_hash = $2 AND totp_secret IS NOT DISTINCT FROM $3";

/// The parameters of [`VERIFIED`].
pub(super) fn verified(user: &User) -> [Value<'_>; 3] {
    let secret = user.totp.as_ref().map(|totp| &totp.secret);
    [user.id.into(), (&user.password_hash).into(), secret.into()]
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

    /// Locks the workspace of a user whose password or code was verified. Returns `None` if the password or
    /// the second factor was changed since the user was read, or the user was removed.
    pub(super) async fn lock_verified(tx: &mut Tx<'_>, user: &User) -> Result<Option<Self>, StoreError> {
        let member = match Self::lock(tx, user.id).await {
            Err(StoreError::UnknownUser) => return Ok(None),
            member => member?,
        };
        // A statement of its own, because the lock may have waited for the change.
        let select = format!("SELECT rowid FROM member WHERE {VERIFIED}");
        Ok(tx.exists(&select, &verified(user)).await?.then_some(member))
    }

    /// Locks this workspace. Only the operator changes users of a deleted workspace.
    ///
    /// Errors: [`StoreError::UnknownUser`] if the user belongs to another one; [`StoreError::NotAllowed`].
    pub(super) async fn lock_in(
        tx: &mut Tx<'_>,
        workspace: &WorkspaceId,
        user: UserId,
        actor: &Actor<'_>,
    ) -> Result<Self, StoreError> {
        let workspace =
            if actor.is_operator() { lock(tx, workspace).await? } else { lock_live(tx, workspace).await? };
        log::authorize(tx, workspace, actor).await?;
        Self::read(tx, workspace, user).await
    }

    async fn read(tx: &mut Tx<'_>, workspace: i64, user: UserId) -> Result<Self, StoreError> {
        let select = "SELECT email, role FROM member WHERE workspace = $1 AND rowid = $2";
        let mut row = tx.row(select, values![workspace, user]).await?.ok_or(StoreError::UnknownUser)?;
        Ok(Self { workspace, email: row.read()?, role: row.read()? })
    }
}
