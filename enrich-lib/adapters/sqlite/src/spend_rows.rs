//! Lists of spends, and the removal of old ones.

use enrich_lib::key::KeyId;
use enrich_lib::model::LookupId;
use enrich_store::records::{REMOVED_MAX, SpendPage, SpendRow};
use enrich_store::usage::Day;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::column::time;
use crate::error::SqliteError;

/// Reads a page of the spends of a workspace.
pub(crate) fn page(
    db: &Connection,
    workspace: i64,
    first: LookupId,
    end: LookupId,
) -> Result<SpendPage, SqliteError> {
    let select = "SELECT lookup_id FROM credit_spend WHERE lookup_id >= ? AND lookup_id < ? ORDER BY lookup_id LIMIT 1 OFFSET ?";
    let bounds = params![first.as_bytes(), end.as_bytes(), SpendPage::SPENDS_READ_MAX];
    let next = db.prepare_cached(select)?.query_row(bounds, |row| row.get(0)).optional()?;
    let next = next.map(LookupId::from_bytes);
    let mut select = db.prepare_cached(
        "SELECT s.lookup_id, s.key, s.credits, s.at, g.at
         FROM credit_spend s LEFT JOIN credit_grant g ON g.lookup_id = s.lookup_id
         WHERE s.lookup_id >= ? AND s.lookup_id < ? AND s.workspace = ? ORDER BY s.lookup_id",
    )?;
    let rows =
        select.query_map(params![first.as_bytes(), next.unwrap_or(end).as_bytes(), workspace], |row| {
            Ok(SpendRow {
                lookup_id: LookupId::from_bytes(row.get(0)?),
                key: KeyId::from_number(row.get(1)?),
                credits: row.get(2)?,
                at: time(row.get(3)?),
                refunded_at: row.get::<_, Option<_>>(4)?.map(time),
            })
        })?;
    Ok(SpendPage { rows: rows.collect::<Result<_, _>>()?, next })
}

/// Removes the oldest spends from before a day. Keeps those that the totals or the usage do not include yet. Returns their number.
pub(crate) fn remove(tx: &Transaction<'_>, before: Day) -> Result<u64, SqliteError> {
    let select = "SELECT count(*), max(lookup_id) FROM (
             SELECT lookup_id FROM credit_spend
             WHERE lookup_id < ? AND lookup_id <= (SELECT lookup_id FROM spent_until)
               AND lookup_id <= (SELECT lookup_id FROM usage_until)
             ORDER BY lookup_id LIMIT ?
         )";
    let first_kept = before.first_lookup();
    let bounds = params![first_kept.as_bytes(), REMOVED_MAX];
    let (removed, last): (u64, Option<[u8; 16]>) =
        tx.query_row(select, bounds, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let Some(last) = last else { return Ok(0) };
    tx.execute(
        "INSERT INTO removed_spends (workspace, key, lookups, credits)
         SELECT workspace, key, count(*), sum(credits) FROM credit_spend WHERE lookup_id <= ? GROUP BY 1, 2
         ON CONFLICT DO UPDATE SET lookups = lookups + excluded.lookups, credits = credits + excluded.credits",
        [last],
    )?;
    tx.execute("UPDATE removed_until SET lookup_id = ?", [last])?;
    tx.execute("DELETE FROM credit_spend WHERE lookup_id <= ?", [last])?;
    Ok(removed)
}
