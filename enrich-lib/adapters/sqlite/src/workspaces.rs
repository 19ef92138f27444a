//! Statements about workspaces and their grants.

use enrich_lib::credit::Balance;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::records::GrantRow;
use enrich_store::{Actor, Event, StoreError, credits};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use crate::column::{ms, time};
use crate::error::SqliteError;
use crate::events;

pub(crate) fn grant(
    tx: &Transaction<'_>,
    workspace: i64,
    credits: u64,
    now: Timestamp,
) -> Result<(), SqliteError> {
    let select = "SELECT granted FROM workspace WHERE rowid = ?";
    let granted = tx.query_row(select, [workspace], |row| row.get(0))?;
    let (credits, granted) = credits::add_grant(granted, credits)?;
    let insert = "INSERT INTO credit_grant (workspace, credits, at) VALUES (?, ?, ?)";
    tx.execute(insert, params![workspace, credits, ms(now)])?;
    tx.execute("UPDATE workspace SET granted = ? WHERE rowid = ?", [granted, workspace])?;
    events::record(tx, workspace, Event::CreditsGranted(credits.unsigned_abs()), &Actor::operator(now))
}

pub(crate) fn grants(db: &Connection, workspace: &WorkspaceId) -> Result<Vec<GrantRow>, SqliteError> {
    let mut select = db.prepare("SELECT credits, at FROM credit_grant WHERE workspace = ? ORDER BY rowid")?;
    let rows = select.query_map([rowid(db, workspace)?], |row| {
        Ok(GrantRow { credits: row.get(0)?, at: time(row.get(1)?) })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the row of a workspace.
pub(crate) fn rowid(db: &Connection, workspace: &WorkspaceId) -> Result<i64, SqliteError> {
    let select = "SELECT rowid FROM workspace WHERE id = ?";
    let row = db.query_row(select, [workspace.as_str()], |row| row.get(0)).optional()?;
    row.ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()).into())
}

/// Reads granted, spent and held credits from the first three columns. Holds end with the process that serves.
pub(crate) fn balance(row: &Row<'_>, is_served: bool) -> rusqlite::Result<Balance> {
    let (granted, spent, held): (u64, u64, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(credits::balance(granted, spent, if is_served { held } else { 0 }))
}
