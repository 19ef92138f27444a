//! Writes events to the audit log, in the transaction of the change.

use enrich_store::{Actor, Authority, Event, StoreError};
use rusqlite::{Connection, params};

use crate::column::ms;
use crate::error::SqliteError;

/// Adds an event to the audit log of `workspace`. Checks first that the author is allowed to change it: call it before the change
/// removes the author's own right.
///
/// Errors: [`StoreError::NotAllowed`].
pub(crate) fn record(
    db: &Connection,
    workspace: i64,
    event: Event<'_>,
    actor: &Actor<'_>,
) -> Result<(), SqliteError> {
    if let Some(Authority { session, is_admin }) = actor.authority {
        let select = "SELECT 1 FROM member_session s JOIN member m ON m.rowid = s.member
             WHERE s.digest = ? AND m.workspace = ? AND (m.role = 'admin' OR NOT ?)";
        if !db.prepare_cached(select)?.exists(params![session.as_bytes(), workspace, is_admin])? {
            return Err(StoreError::NotAllowed.into());
        }
    }
    let insert =
        "INSERT INTO audit_event (workspace, at, actor, action, subject, address) VALUES (?, ?, ?, ?, ?, ?)";
    let address = actor.address.map(|address| address.to_string());
    let row = params![workspace, ms(actor.now), actor.name, event.action(), event.subject(), address];
    db.prepare_cached(insert)?.execute(row)?;
    Ok(())
}
