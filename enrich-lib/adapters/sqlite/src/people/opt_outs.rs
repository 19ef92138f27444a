//! The opt-outs of the people directory, on disk.

use enrich_store::{EmailHash, OptOut, opt_out_range};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use crate::column::{ms, time};
use crate::error::SqliteError;
use crate::files::database;

/// Changes in one commit. Other writers wait for at most one commit.
const BATCH_ROWS: usize = 1_000;

/// Writes changes. Deletes the records of people who opted out. Returns the number of people whose state
/// changed. Each transaction calls `check` first.
pub(super) fn apply(
    db: &mut Connection,
    changes: &[OptOut],
    check: impl Fn() -> Result<(), SqliteError>,
) -> Result<u64, SqliteError> {
    let mut changed = 0;
    for batch in changes.chunks(BATCH_ROWS) {
        let tx = database::begin(db)?;
        check()?;
        for change in batch {
            changed += u64::from(apply_one(&tx, change)?);
        }
        tx.commit()?;
    }
    // Until then, the file contains the records. A reader of an older state may delay it until a later change.
    let _ = database::apply_log(db);
    Ok(changed)
}

fn apply_one(tx: &Transaction<'_>, change: &OptOut) -> Result<bool, SqliteError> {
    let OptOut { email_hash, is_withdrawn, at } = change;
    // Changes only the state of a person. There is nothing to withdraw for one who never opted out.
    let mut replace = tx.prepare_cached(
        "INSERT OR REPLACE INTO opt_out (email_hash, is_withdrawn, at) SELECT ?1, ?2, ?3
         WHERE ?2 = EXISTS (SELECT 1 FROM opt_out WHERE email_hash = ?1 AND NOT is_withdrawn)",
    )?;
    let is_changed = replace.execute(params![email_hash, is_withdrawn, ms(*at)])? > 0;
    if is_changed && !is_withdrawn {
        let mut delete = tx.prepare_cached("DELETE FROM person WHERE email_hash BETWEEN ? AND ?")?;
        delete.execute(opt_out_range(email_hash))?;
    }
    Ok(is_changed)
}

/// Returns the last change of each person, oldest first.
pub(super) fn all(db: &Connection) -> Result<Vec<OptOut>, SqliteError> {
    let mut select =
        db.prepare("SELECT email_hash, is_withdrawn, at FROM opt_out ORDER BY at, email_hash")?;
    let rows = select.query_map([], opt_out)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the last change of a person.
pub(super) fn find(db: &Connection, hash: &EmailHash) -> Result<Option<OptOut>, SqliteError> {
    let mut select =
        db.prepare_cached("SELECT email_hash, is_withdrawn, at FROM opt_out WHERE email_hash = ?")?;
    Ok(select.query_row([hash], opt_out).optional()?)
}

fn opt_out(row: &Row<'_>) -> rusqlite::Result<OptOut> {
    Ok(OptOut { email_hash: row.get(0)?, is_withdrawn: row.get(1)?, at: time(row.get(2)?) })
}
