//! The writer's statements.

use std::sync::LazyLock;

use enrich_lib::model::LookupId;
use enrich_lib::receipt::Receipt;
use enrich_store::KeyUse;
use rusqlite::{Connection, Transaction, params};

use super::shared::{Shared, payer};
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
        // CROSS JOIN, so that no version of SQLite reads all workspaces first.
        "SELECT max(g.rowid), w.id FROM credit_grant g CROSS JOIN workspace w ON w.rowid = g.workspace
         WHERE g.rowid > ? GROUP BY w.rowid ORDER BY w.rowid",
    )?;
    let mut rows = select.query([*seen])?;
    let mut last = *seen;
    while let Some(row) = rows.next()? {
        last = last.max(row.get(0)?);
        changed.push(parsed(row, 1, |id: String| id.parse())?);
    }
    if changed.is_empty() {
        return Ok(());
    }
    let mut select = db.prepare_cached("SELECT granted FROM workspace WHERE rowid = ?")?;
    for state in shared.cached_accounts(&changed)? {
        state.account().set_granted(select.query_row([state.rowid], |row| row.get(0))?);
    }
    *seen = last;
    Ok(())
}

/// Inserts spends. Returns how many of them are new.
pub(crate) fn insert_spends(tx: &Transaction<'_>, spends: &[&BegunSpend]) -> Result<usize, SqliteError> {
    static ONE: LazyLock<String> = LazyLock::new(|| insert_of(1));
    static MANY: LazyLock<String> = LazyLock::new(|| insert_of(ROWS));
    let mut insert = tx.prepare_cached(if spends.len() == 1 { &ONE } else { &MANY })?;
    let mut places = 1..;
    let mut place = || places.next().unwrap_or_default();
    for spend in spends {
        let BilledLookup { lookup_id, workspace, key, at, credits, .. } = *spend.lookup();
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

/// Inserts the receipt of a spend. Returns the lookup that has paid for it if there is one.
pub(crate) fn insert_receipt(
    tx: &Transaction<'_>,
    lookup: &BilledLookup,
    receipt: Receipt,
    now_ms: i64,
) -> Result<Option<LookupId>, SqliteError> {
    let insert = "INSERT INTO credit_receipt (workspace, receipt, lookup_id, at) VALUES (?, ?, ?, ?)
                  ON CONFLICT (workspace, receipt) DO NOTHING";
    let mut insert = tx.prepare_cached(insert)?;
    let BilledLookup { lookup_id, workspace, .. } = lookup;
    match insert.execute(params![workspace, receipt.as_bytes(), lookup_id.as_bytes(), now_ms])? {
        0 => payer(tx, *workspace, receipt),
        _ => Ok(None),
    }
}

/// Returns whether there are receipts that have ended.
pub(crate) fn has_old_receipts(db: &Connection, until_ms: i64) -> Result<bool, SqliteError> {
    Ok(db.prepare_cached("SELECT 1 FROM credit_receipt WHERE at <= ? LIMIT 1")?.exists([until_ms])?)
}

/// Deletes the oldest receipts that have ended.
pub(crate) fn delete_old_receipts(tx: &Transaction<'_>, until_ms: i64) -> Result<(), SqliteError> {
    const ROWS_MAX: usize = 1_000;
    let delete = "DELETE FROM credit_receipt WHERE lookup_id IN (
                      SELECT lookup_id FROM credit_receipt WHERE at <= ? ORDER BY at LIMIT ?)";
    tx.prepare_cached(delete)?.execute(params![until_ms, ROWS_MAX])?;
    Ok(())
}

/// Writes when keys were last used.
pub(crate) fn write_key_uses(tx: &Transaction<'_>, used: &[KeyUse]) -> Result<(), SqliteError> {
    let mut update = tx.prepare_cached(
        "UPDATE api_key SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE rowid = ?",
    )?;
    for key in used {
        update.execute(params![ms(key.at), key.rowid])?;
    }
    Ok(())
}
