//! The lock of a workspace.

use enrich_lib::model::{Timestamp, WorkspaceId};

use super::transaction::Tx;
use crate::error::StoreError;
use crate::value::values;

/// Locks a workspace and returns its row. Caches read the workspace again after the commit.
pub(super) async fn lock(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<i64, StoreError> {
    Ok(lock_row(tx, id).await?.0)
}

/// Locks a workspace that can be changed, and returns its row.
///
/// Errors: [`StoreError::WorkspaceDeleted`].
pub(super) async fn lock_live(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<i64, StoreError> {
    match lock_row(tx, id).await? {
        (workspace, None) => Ok(workspace),
        (_, Some(_)) => Err(StoreError::WorkspaceDeleted(id.clone())),
    }
}

/// Locks a workspace, and returns its row and when it was deleted.
async fn lock_row(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<(i64, Option<Timestamp>), StoreError> {
    let update = "UPDATE workspace SET revised = revised + 1 WHERE id = $1 RETURNING rowid, deleted_at";
    let row = tx.row(update, values![id]).await?;
    let mut row = row.ok_or_else(|| StoreError::UnknownWorkspace(id.clone()))?;
    Ok((row.read()?, row.read()?))
}

/// Returns the row of a workspace.
pub(super) async fn rowid(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<i64, StoreError> {
    let row = tx.row("SELECT rowid FROM workspace WHERE id = $1", values![id]).await?;
    row.ok_or_else(|| StoreError::UnknownWorkspace(id.clone()))?.read()
}

/// Returns the name of a workspace.
pub(super) async fn id(tx: &mut Tx<'_>, rowid: i64) -> Result<WorkspaceId, StoreError> {
    tx.value("SELECT id FROM workspace WHERE rowid = $1", values![rowid]).await
}
