//! The audit log of administrative changes.

use enrich_lib::model::WorkspaceId;
use enrich_store::users::AuditEvent;
use enrich_store::{Actor, Authority, Event, StoreError};
use tokio_postgres::{GenericClient, Row};

use crate::column::{at, time, workspace_rowid};
use crate::error::PostgresError;
use crate::pool::{Client, Value};

/// Records an event in a workspace, in the transaction of the change. Checks first that the author is allowed to change the
/// workspace: call it before the change removes the author's own right.
///
/// Errors: [`StoreError::NotAllowed`].
pub(crate) async fn record(
    tx: &impl GenericClient,
    workspace: i64,
    event: &Event<'_>,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    if let Some(Authority { session, is_admin }) = actor.authority {
        // The lock lets the author be removed only after this change.
        let select = "SELECT FROM member_session s JOIN member m ON m.rowid = s.member
             WHERE s.digest = $1 AND m.workspace = $2 AND (m.role = 'admin' OR NOT $3) FOR SHARE";
        let values: [Value<'_>; 3] = [&session.as_bytes().as_slice(), &workspace, &is_admin];
        tx.query_opt(select, &values).await?.ok_or(StoreError::NotAllowed)?;
    }
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
