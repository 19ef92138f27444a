//! The audit log of administrative changes.

use enrich_lib::model::WorkspaceId;
use enrich_store::users::AuditEvent;
use enrich_store::{Actor, Event};
use tokio_postgres::{GenericClient, Row};

use crate::column::{at, time, workspace_rowid};
use crate::error::PostgresError;
use crate::pool::Client;

/// Records an event in a workspace, in the transaction of the change.
pub(crate) async fn record(
    tx: &impl GenericClient,
    workspace: i64,
    event: &Event<'_>,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let insert = "INSERT INTO audit_event (workspace, at, actor, action, subject, address)
         VALUES ($1, $2, $3, $4, $5, $6)";
    let (action, subject) = (event.action(), event.subject());
    tx.execute(insert, &[&workspace, &at(actor.now), &actor.name, &action, &subject, &actor.address]).await?;
    Ok(())
}

/// Returns up to `limit` events with a number less than `before`, newest first.
pub(crate) async fn read(
    client: &Client,
    workspace: &WorkspaceId,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<AuditEvent>, PostgresError> {
    let workspace = workspace_rowid(&**client, workspace).await?;
    let select = "SELECT number, at, actor, action, subject, address FROM audit_event
         WHERE workspace = $1 AND number < $2 ORDER BY number DESC LIMIT $3";
    let before = before.unwrap_or(i64::MAX);
    let rows = client.query(select, &[&workspace, &before, &i64::from(limit)]).await?;
    let event = |row: &Row| AuditEvent {
        number: row.get(0),
        at: time(row.get(1)),
        actor: row.get(2),
        action: row.get(3),
        subject: row.get(4),
        address: row.get(5),
    };
    Ok(rows.iter().map(event).collect())
}
