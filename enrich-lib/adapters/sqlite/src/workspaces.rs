//! Statements about workspaces.

use enrich_lib::credit::Balance;
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Quota;
use enrich_store::records::WorkspaceRow;
use enrich_store::workspace::{WorkspaceChange, WorkspaceProperties};
use enrich_store::{Actor, StoreError, credits};
use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction, params};

use crate::column::{ms, parsed, time};
use crate::error::SqliteError;
use crate::events;

/// The columns of [`WorkspaceProperties`] in `workspace`.
pub(crate) const PROPERTIES: &str =
    "quota_limit, window_seconds, display_name, low_balance, suspended_at, deleted_at";

/// Reads the columns of [`PROPERTIES`] from `first` on.
pub(crate) fn properties(row: &Row<'_>, first: usize) -> rusqlite::Result<WorkspaceProperties> {
    let at = |column: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<_>>(first + column)?.map(time));
    let window_seconds = row.get(first + 1)?;
    Ok(WorkspaceProperties {
        quota: parsed(row, first, |limit| Quota::new(limit, window_seconds))?,
        display_name: row.get(first + 2)?,
        low_balance: row.get(first + 3)?,
        suspended_at: at(4)?,
        deleted_at: at(5)?,
    })
}

/// Reads the workspaces that match `condition` with a parameter, by name.
pub(crate) fn rows(
    db: &Connection,
    condition: &str,
    values: impl Params,
    is_served: bool,
) -> Result<Vec<WorkspaceRow>, SqliteError> {
    let mut select = db.prepare_cached(&format!(
        "SELECT a.granted, a.spent, a.held, w.id, w.created_at, {PROPERTIES}
         FROM account a JOIN workspace w USING (rowid) WHERE {condition} ORDER BY w.id"
    ))?;
    let rows = select.query_map(values, |row| {
        Ok(WorkspaceRow {
            balance: balance(row, is_served)?,
            id: parsed(row, 3, |id: String| id.parse())?,
            created_at: time(row.get(4)?),
            properties: properties(row, 5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Reads the workspaces whose balance is low.
pub(crate) fn low_balances(db: &Connection, is_served: bool) -> Result<Vec<WorkspaceRow>, SqliteError> {
    // Balances add up the tail of the spends. Without a threshold, there is nothing to add up.
    if !db.prepare_cached("SELECT 1 FROM workspace WHERE low_balance > 0 LIMIT 1")?.exists([])? {
        return Ok(Vec::new());
    }
    let mut rows = rows(db, "w.low_balance > 0 AND w.deleted_at IS NULL", [], is_served)?;
    rows.retain(|row| row.balance.available < row.properties.low_balance);
    Ok(rows)
}

/// Changes a workspace.
pub(crate) fn change(
    tx: &Transaction<'_>,
    id: &WorkspaceId,
    changes: &[WorkspaceChange<'_>],
    actor: &Actor<'_>,
) -> Result<(), SqliteError> {
    let workspace = rowid(tx, id)?;
    let select = format!("SELECT {PROPERTIES} FROM workspace WHERE rowid = ?");
    let mut new = tx.query_row(&select, [workspace], |row| properties(row, 0))?;
    for change in changes {
        if let Some(event) = new.apply(id, change, actor.now)? {
            events::record(tx, workspace, event, actor)?;
        }
    }
    let WorkspaceProperties { quota, display_name, low_balance, suspended_at, deleted_at } = &new;
    tx.execute(
        "UPDATE workspace SET quota_limit = ?, window_seconds = ?, display_name = ?, low_balance = ?, suspended_at = ?,
             deleted_at = ? WHERE rowid = ?",
        params![
            quota.limit(),
            quota.window_seconds(),
            display_name,
            low_balance,
            suspended_at.map(ms),
            deleted_at.map(ms),
            workspace
        ],
    )?;
    Ok(())
}

/// Returns the row of a workspace that can be changed.
///
/// Errors: [`StoreError::WorkspaceDeleted`].
pub(crate) fn live_rowid(db: &Connection, workspace: &WorkspaceId) -> Result<i64, SqliteError> {
    let rowid = rowid(db, workspace)?;
    let mut select = db.prepare_cached("SELECT deleted_at IS NOT NULL FROM workspace WHERE rowid = ?")?;
    if select.query_row([rowid], |row| row.get(0))? {
        return Err(StoreError::WorkspaceDeleted(workspace.clone()).into());
    }
    Ok(rowid)
}

/// Returns the row of a workspace.
pub(crate) fn rowid(db: &Connection, workspace: &WorkspaceId) -> Result<i64, SqliteError> {
    let mut select = db.prepare_cached("SELECT rowid FROM workspace WHERE id = ?")?;
    let row = select.query_row([workspace.as_str()], |row| row.get(0)).optional()?;
    row.ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()).into())
}

/// Returns the name of a workspace.
pub(crate) fn id(db: &Connection, rowid: i64) -> Result<WorkspaceId, SqliteError> {
    let select = "SELECT id FROM workspace WHERE rowid = ?";
    Ok(db.query_row(select, [rowid], |row| parsed(row, 0, |id: String| id.parse()))?)
}

/// Reads granted, spent and held credits from the first three columns. Holds end with the process that serves.
pub(crate) fn balance(row: &Row<'_>, is_served: bool) -> rusqlite::Result<Balance> {
    let (granted, spent, held): (u64, u64, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(credits::balance(granted, spent, if is_served { held } else { 0 }))
}
