//! Workspaces.

use enrich_lib::credit::Balance;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::window::Quota;

use super::lock::{lock, lock_live};
use super::transaction::{Accounts, Tx, transact};
use super::{grants, log};
use crate::action::Action;
use crate::actor::Actor;
use crate::credits;
use crate::error::StoreError;
use crate::records::WorkspaceRow;
use crate::value::{Row, Value, values};
use crate::workspace::{RESERVED, WorkspaceChange, WorkspaceProperties};

/// The columns of [`WorkspaceProperties`].
pub(super) const PROPERTIES: &str =
    "w.quota_limit, w.window_seconds, w.display_name, w.low_balance, w.suspended_at, w.deleted_at";

/// Reads the columns of [`PROPERTIES`].
pub(super) fn properties(row: &mut Row) -> Result<WorkspaceProperties, StoreError> {
    Ok(WorkspaceProperties {
        quota: Quota::new(row.read()?, row.read()?)?,
        display_name: row.read()?,
        low_balance: row.read()?,
        suspended_at: row.read()?,
        deleted_at: row.read()?,
    })
}

impl Accounts {
    /// Creates a workspace with `credits`. The operator is the author of the events `workspace.created` and,
    /// unless `credits` is 0, `credits.granted`.
    ///
    /// Errors: [`StoreError::WorkspaceExists`], or [`StoreError::WorkspaceDeleted`] if it was deleted;
    /// [`StoreError::WorkspaceCase`]; [`StoreError::WorkspaceReserved`]; [`StoreError::Account`] if `credits` is too large.
    pub async fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if id.as_str().starts_with(RESERVED) {
            return Err(StoreError::WorkspaceReserved(id.clone()));
        }
        let actor = Actor::operator(now);
        transact!(self, tx, {
            let insert =
                "INSERT INTO workspace (id, quota_limit, window_seconds, created_at) VALUES ($1, $2, $3, $4)
                 ON CONFLICT DO NOTHING RETURNING rowid";
            let row = tx.row(insert, values![id, quota.limit(), quota.window_seconds(), now]).await?;
            let Some(mut row) = row else {
                let select = "SELECT id FROM workspace WHERE lower(id) = $1";
                let existing: WorkspaceId =
                    tx.value(select, values![&id.as_str().to_ascii_lowercase()]).await?;
                lock_live(tx, &existing).await?;
                let is_same = existing == *id;
                let error = if is_same { StoreError::WorkspaceExists } else { StoreError::WorkspaceCase };
                return Err(error(existing));
            };
            let workspace = row.read()?;
            log::record(tx, workspace, Action::WorkspaceCreated, id.as_str(), &actor).await?;
            if credits > 0 {
                grants::grant(tx, workspace, credits, &actor).await?;
            }
            Ok(())
        })
    }

    /// Returns all workspaces, by name.
    pub async fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, StoreError> {
        workspaces_with(&mut *self.read().await?, "1 = 1", &[]).await
    }

    /// Returns a workspace.
    pub async fn workspace(&mut self, id: &WorkspaceId) -> Result<WorkspaceRow, StoreError> {
        workspace(&mut *self.read().await?, id).await
    }

    /// Returns the workspaces with fewer available credits than their threshold, by name, without suspended and
    /// deleted ones.
    pub async fn low_balances(&mut self) -> Result<Vec<WorkspaceRow>, StoreError> {
        // A balance is more expensive to read than a threshold.
        let select = "SELECT rowid FROM workspace WHERE low_balance > 0 LIMIT 1";
        let mut tx = self.read().await?;
        if !tx.exists(select, &[]).await? {
            return Ok(Vec::new());
        }
        let condition = "w.low_balance > 0 AND w.suspended_at IS NULL AND w.deleted_at IS NULL
             AND a.granted - a.spent - a.held < w.low_balance";
        workspaces_with(&mut *tx, condition, &[]).await
    }

    /// Returns the balance of `workspace`. On SQLite, holds are in the memory of the server, and count as available.
    pub async fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        Ok(self.workspace(workspace).await?.balance)
    }

    /// Changes a workspace and returns its new row. All changes are made, or none. Each has an event, unless
    /// it changes nothing. They apply to all nodes within a second; lookups in progress are completed.
    ///
    /// Errors: [`StoreError::Quota`].
    pub async fn change_workspace(
        &mut self,
        id: &WorkspaceId,
        changes: &[WorkspaceChange<'_>],
        actor: &Actor<'_>,
    ) -> Result<WorkspaceRow, StoreError> {
        transact!(self, tx, {
            let workspace = lock(tx, id).await?;
            let select = format!("SELECT {PROPERTIES} FROM workspace w WHERE w.rowid = $1");
            let mut row = tx.row(&select, values![workspace]).await?.unwrap_or_default();
            let mut new = properties(&mut row)?;
            for change in changes {
                if let Some((action, subject)) = new.apply(id, change, actor.now)? {
                    log::record(tx, workspace, action, &subject, actor).await?;
                }
            }
            let update = "UPDATE workspace SET quota_limit = $2, window_seconds = $3, display_name = $4, low_balance = $5,
                     suspended_at = $6, deleted_at = $7 WHERE rowid = $1";
            let WorkspaceProperties { quota, display_name, low_balance, suspended_at, deleted_at } = &new;
            let (limit, window) = (quota.limit(), quota.window_seconds());
            let (name, low_balance) = (display_name.as_deref(), *low_balance);
            let row = values![workspace, limit, window, name, low_balance, *suspended_at, *deleted_at];
            tx.execute(update, row).await?;
            // Not after the commit: an error would be one of a change that was made.
            self::workspace(tx, id).await
        })
    }
}

async fn workspace(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<WorkspaceRow, StoreError> {
    let rows = workspaces_with(tx, "w.id = $1", values![id]).await?;
    rows.into_iter().next().ok_or_else(|| StoreError::UnknownWorkspace(id.clone()))
}

async fn workspaces_with(
    tx: &mut Tx<'_>,
    condition: &str,
    values: &[Value<'_>],
) -> Result<Vec<WorkspaceRow>, StoreError> {
    let select = format!(
        "SELECT w.id, w.created_at, a.granted, a.spent, a.held, {PROPERTIES}
         FROM account a JOIN workspace w ON w.rowid = a.rowid WHERE {condition} ORDER BY w.id"
    );
    let read = |row: &mut Row| {
        let (id, created_at) = (row.read()?, row.read()?);
        let balance = credits::balance(row.read()?, row.read()?, row.read()?);
        Ok(WorkspaceRow { id, created_at, balance, properties: properties(row)? })
    };
    tx.rows(&select, values, read).await
}
