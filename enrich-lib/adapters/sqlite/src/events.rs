//! Writes events to the audit log, in the transaction of the change.

use enrich_store::{Actor, Event};
use rusqlite::{Connection, params};

use crate::column::ms;
use crate::error::SqliteError;

/// Adds an event to the audit log of `workspace`.
pub(crate) fn record(
    db: &Connection,
    workspace: i64,
    event: Event<'_>,
    actor: &Actor<'_>,
) -> Result<(), SqliteError> {
    let insert =
        "INSERT INTO audit_event (workspace, at, actor, action, subject, address) VALUES (?, ?, ?, ?, ?, ?)";
    let address = actor.address.map(|address| address.to_string());
    let row = params![workspace, ms(actor.now), actor.name, event.action(), event.subject(), address];
    db.prepare_cached(insert)?.execute(row)?;
    Ok(())
}
