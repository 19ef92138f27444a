//! The lock of a workspace.

use enrich_lib::model::WorkspaceId;

use super::transaction::Tx;
use crate::error::StoreError;
use crate::value::values;

/// Locks a workspace and returns its row. Caches read the workspace again after the commit.
pub(super) async fn lock(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<i64, StoreError> {
    let update = "UPDATE workspace SET revised = revised + 1 WHERE id = $1 RETURNING rowid";
    let row = tx.row(update, values![id]).await?;
    row.ok_or_else(|| StoreError::UnknownWorkspace(id.clone()))?.read()
}

/// Locks a workspace that can be changed, and returns its row.
///
/// Errors: [`StoreError::WorkspaceDeleted`].
pub(super) async fn lock_live(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<i64, StoreError> {
    let workspace = lock(tx, id).await?;
    let select = "SELECT rowid FROM workspace WHERE rowid = $1 AND deleted_at IS NOT NULL";
    if tx.exists(select, values![workspace]).await? {
        return Err(StoreError::WorkspaceDeleted(id.clone()));
    }
    Ok(workspace)
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
