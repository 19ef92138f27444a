//! The audit log.

use enrich_lib::model::WorkspaceId;

use super::lock::rowid;
use super::transaction::{Accounts, Tx};
use crate::action::Action;
use crate::actor::{Actor, Authority};
use crate::error::StoreError;
use crate::users::{AuditEvent, Role, UserEmail};
use crate::value::{Row, values};

/// Checks that the author is allowed to change a locked workspace. Errors: [`StoreError::NotAllowed`].
pub(super) async fn authorize(tx: &mut Tx<'_>, workspace: i64, actor: &Actor<'_>) -> Result<(), StoreError> {
    if let Some(Authority { session, is_admin }) = actor.authority {
        let select = "SELECT m.rowid FROM member_session s JOIN member m ON m.rowid = s.member
             WHERE s.digest = $1 AND m.workspace = $2 AND (m.role = 'admin' OR $3 = 0)";
        if !tx.exists(select, values![session, workspace, i64::from(is_admin)]).await? {
            return Err(StoreError::NotAllowed);
        }
    }
    Ok(())
}

/// Adds an event to the audit log of `workspace`, in the transaction of the change, which must not have
/// removed the author's own right yet. A change that may have no event calls [`authorize`], too.
///
/// Errors: [`StoreError::NotAllowed`].
pub(super) async fn record(
    tx: &mut Tx<'_>,
    workspace: i64,
    action: Action,
    subject: &str,
    actor: &Actor<'_>,
) -> Result<(), StoreError> {
    authorize(tx, workspace, actor).await?;
    let insert = "INSERT INTO audit_event (workspace, at, actor, action, subject, address)
         VALUES ($1, $2, $3, $4, $5, $6)";
    let row = values![workspace, actor.now, actor.name, action.as_str(), subject, actor.address];
    tx.execute(insert, row).await?;
    Ok(())
}

/// Returns the subject of an event about a user's role.
pub(super) fn user_with_role(email: &UserEmail, role: Role) -> String {
    format!("{} ({})", email.as_str(), role.as_str())
}

impl Accounts {
    /// Returns up to `limit` events of `workspace` with a number less than `before`, newest first.
    pub async fn audit_log(
        &mut self,
        workspace: &WorkspaceId,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        let mut tx = self.read().await?;
        let workspace = rowid(&mut *tx, workspace).await?;
        let select = format!(
            "SELECT {COLUMNS} FROM audit_event WHERE workspace = $1 AND rowid < $2 ORDER BY rowid DESC LIMIT $3"
        );
        tx.rows(&select, values![workspace, before.unwrap_or(i64::MAX), limit], event).await
    }
}

/// The columns of [`AuditEvent`].
pub(super) const COLUMNS: &str = "rowid, at, actor, action, subject, address";

/// Reads the columns of [`COLUMNS`].
pub(super) fn event(row: &mut Row) -> Result<AuditEvent, StoreError> {
    Ok(AuditEvent {
        number: row.read()?,
        at: row.read()?,
        actor: row.read()?,
        action: row.read()?,
        subject: row.read()?,
        address: row.read()?,
    })
}
