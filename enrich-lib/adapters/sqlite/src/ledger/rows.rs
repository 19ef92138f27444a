//! The writer's statements.

use std::sync::LazyLock;

use enrich_lib::model::WorkspaceId;
use enrich_store::KeyUse;
use rusqlite::{Connection, Transaction, params};

use super::shared::Shared;
use super::spend::BegunSpend;
use super::usage::BilledLookup;
use crate::column::{ms, parsed};
use crate::error::SqliteError;

/// Number of spends in a multi-row `INSERT`. It takes half as long per spend as single-row statements.
pub(crate) const ROWS: usize = 16;

/// Applies the grants and withdrawals of other processes, with a rowid greater than `seen`. If it fails, the
/// next call completes it.
pub(crate) fn read_grants(db: &Connection, shared: &Shared, seen: &mut i64) -> Result<(), SqliteError> {
    let mut changed = Vec::new();
    let mut select = db.prepare_cached(
        "SELECT max(g.rowid), w.id FROM credit_grant g JOIN workspace w ON w.rowid = g.workspace
         WHERE g.rowid > ? GROUP BY w.rowid ORDER BY w.rowid",
    )?;
    let mut rows = select.query([*seen])?;
    let mut last = *seen;
    while let Some(row) = rows.next()? {
        last = last.max(row.get(0)?);
        let id: WorkspaceId = parsed(row, 1, |id: String| id.parse())?;
        // Waits if the account is being read from disk at this moment.
        changed.extend(shared.cached(&id));
    }
    let mut select = db.prepare_cached("SELECT granted FROM workspace WHERE rowid = ?")?;
    for state in changed {
        state.account().set_granted(select.query_row([state.rowid], |row| row.get(0))?);
    }
    *seen = last;
    Ok(())
}

/// Inserts spends. Returns how many of them are new.
pub(crate) fn insert_spends(tx: &Transaction<'_>, spends: &[BegunSpend]) -> Result<usize, SqliteError> {
    static ONE: LazyLock<String> = LazyLock::new(|| insert_of(1));
    static MANY: LazyLock<String> = LazyLock::new(|| insert_of(ROWS));
    let mut insert = tx.prepare_cached(if spends.len() == 1 { &ONE } else { &MANY })?;
    let mut places = 1..;
    let mut place = || places.next().unwrap_or_default();
    for spend in spends {
        let BilledLookup { lookup_id, workspace, key, at, credits } = *spend.lookup();
        insert.raw_bind_parameter(place(), lookup_id.as_bytes())?;
        insert.raw_bind_parameter(place(), workspace)?;
        insert.raw_bind_parameter(place(), key.number())?;
        insert.raw_bind_parameter(place(), credits)?;
        insert.raw_bind_parameter(place(), ms(at))?;
    }
    Ok(insert.raw_execute()?)
}

fn insert_of(rows: usize) -> String {
    let rows = vec!["(?, ?, ?, ?, ?)"; rows].join(", ");
    format!(
        "INSERT INTO credit_spend (lookup_id, workspace, key, credits, at) VALUES {rows} ON CONFLICT (lookup_id) DO NOTHING"
    )
}

/// Writes when keys were last used.
pub(crate) fn write_key_uses(tx: &Transaction<'_>, used: &[KeyUse]) -> Result<(), SqliteError> {
    let mut update = tx.prepare_cached("UPDATE api_key SET last_used_at = ? WHERE rowid = ?")?;
    for key in used {
        update.execute(params![ms(key.at), key.rowid])?;
    }
    Ok(())
}
