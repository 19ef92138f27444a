//! Withdrawals that commands have requested: see `withdraw`.

use std::sync::Arc;

use enrich_lib::model::WorkspaceId;
use enrich_store::records::GrantKind;
use rusqlite::{Connection, Transaction, params};

use super::commit::{CommitError, commit};
use super::shared::{CachedAccount, Shared};
use crate::column::parsed;
use crate::error::SqliteError;
use crate::files::database::begin;

/// Deletes the requests that an earlier process has not executed, and the results that no command waits for
/// any more.
pub(crate) fn delete_old(db: &Connection, now_ms: i64) -> Result<(), SqliteError> {
    const DAY_MS: i64 = 86_400_000;
    let delete = "DELETE FROM withdrawal WHERE available IS NULL OR at < ?";
    db.execute(delete, [now_ms.saturating_sub(DAY_MS)])?;
    Ok(())
}

/// Executes the requests of commands. If it fails, nothing has changed, and the next call executes them.
pub(crate) fn execute_requests(db: &mut Connection, shared: &Shared) -> Result<(), CommitError> {
    let select = "SELECT 1 FROM withdrawal WHERE available IS NULL";
    if !db.prepare_cached(select)?.exists([])? {
        return Ok(());
    }
    let mut taken = Vec::new();
    let tx = begin(db)?;
    let executed = take_credits(&tx, shared, &mut taken).map_err(CommitError::from);
    let executed = executed.and_then(|()| commit(tx));
    if executed.is_err() {
        for (state, credits) in taken {
            // Cannot overflow: the account had them.
            let _ = state.account().grant(credits);
        }
    }
    executed
}

/// Takes the credits out of the accounts, so that no lookup can hold them any more, and changes the grants.
fn take_credits(
    tx: &Transaction<'_>,
    shared: &Shared,
    taken: &mut Vec<(Arc<CachedAccount>, u64)>,
) -> Result<(), SqliteError> {
    let mut select = tx.prepare_cached(
        "SELECT t.rowid, w.id, t.credits FROM withdrawal t JOIN workspace w ON w.rowid = t.workspace
         WHERE t.available IS NULL AND w.deleted_at IS NULL ORDER BY t.rowid",
    )?;
    let requests = select
        .query_map([], |row| Ok((row.get(0)?, parsed(row, 1, |id: String| id.parse())?, row.get(2)?)))?;
    for request in requests.collect::<Result<Vec<(i64, WorkspaceId, u64)>, _>>()? {
        let (request, id, credits) = request;
        let state = shared.workspace(&id)?;
        let mut account = state.account();
        let available = account.balance().available;
        if available >= credits {
            account.withdraw(credits);
            taken.push((state.clone(), credits));
            execute(tx, request)?;
        }
        drop(account);
        let update = "UPDATE withdrawal SET available = ? WHERE rowid = ?";
        tx.execute(update, params![i64::try_from(available).unwrap_or(i64::MAX), request])?;
    }
    Ok(())
}

/// Changes the grants, and adds the event to the audit log.
fn execute(tx: &Transaction<'_>, request: i64) -> Result<(), SqliteError> {
    let insert = "INSERT INTO credit_grant (workspace, kind, credits, reason, at)
         SELECT workspace, ?, -credits, reason, at FROM withdrawal WHERE rowid = ?";
    tx.execute(insert, params![GrantKind::Adjustment.as_str(), request])?;
    let update = "UPDATE workspace SET granted = granted - t.credits, revised = revised + 1 FROM withdrawal t
         WHERE t.rowid = ? AND workspace.rowid = t.workspace";
    tx.execute(update, [request])?;
    let insert = "INSERT INTO audit_event (workspace, at, actor, action, subject, address)
         SELECT workspace, at, actor, action, subject, address FROM withdrawal WHERE rowid = ?";
    tx.execute(insert, [request])?;
    Ok(())
}
