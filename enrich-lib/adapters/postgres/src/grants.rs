//! Grants, adjustments and refunds.
//!
//! An adjustment withdraws credits that are available at once: those that no lookup holds.

use std::num::NonZeroI64;

use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_store::credits;
use enrich_store::records::{GrantKind, GrantRow};
use enrich_store::{Actor, Event, StoreError};
use tokio_postgres::{GenericClient, Row};

use crate::audit_log;
use crate::column::{self, Uuid, at, live_workspace_rowid, parsed, time, workspace_rowid};
use crate::error::PostgresError;
use crate::pool::{Client, Value};

/// Reads the rows of a workspace, oldest first.
pub(crate) async fn rows(client: &Client, workspace: &WorkspaceId) -> Result<Vec<GrantRow>, PostgresError> {
    let select =
        "SELECT kind, lookup_id, credits, reason, at FROM credit_grant WHERE workspace = $1 ORDER BY rowid";
    let workspace = workspace_rowid(&**client, workspace).await?;
    client.query(select, &[&workspace]).await?.iter().map(row).collect()
}

fn row(row: &Row) -> Result<GrantRow, PostgresError> {
    let lookup_id = row.get::<_, Option<Uuid>>(1).map(|Uuid(lookup_id)| lookup_id);
    Ok(GrantRow {
        kind: parsed("credit_grant.kind", GrantKind::from_columns(row.get(0), lookup_id))?,
        credits: row.get(2),
        reason: row.get(3),
        at: time(row.get(4)),
    })
}

/// Grants credits.
pub(crate) async fn grant(
    tx: &impl GenericClient,
    workspace: i64,
    credits: u64,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    insert(tx, workspace, GrantKind::Grant, credits::granted(credits)?, "", actor).await?;
    audit_log::record(tx, workspace, &Event::CreditsGranted(credits), actor).await
}

/// Refunds a spend. Returns its workspace and credits.
pub(crate) async fn refund(
    client: &mut Client,
    lookup_id: LookupId,
    reason: &str,
    actor: &Actor<'_>,
) -> Result<(WorkspaceId, u64), PostgresError> {
    let tx = client.transaction().await?;
    check_not_refunded(&tx, lookup_id).await?; // before the spend, which may have been removed since then
    let select = "SELECT w.id, s.credits FROM credit_spend s JOIN workspace w ON w.rowid = s.workspace WHERE s.lookup_id = $1";
    let spend =
        tx.query_opt(select, &[&Uuid(lookup_id)]).await?.ok_or(StoreError::UnknownSpend(lookup_id))?;
    let id: WorkspaceId = parsed("workspace.id", spend.get::<_, &str>(0).parse())?;
    let (workspace, credits) = (live_workspace_rowid(&tx, &id).await?, spend.get(1));
    // The lock serializes the refunds of the workspace.
    tx.query_one("SELECT FROM workspace WHERE rowid = $1 FOR NO KEY UPDATE", &[&workspace]).await?;
    check_not_refunded(&tx, lookup_id).await?;
    insert(&tx, workspace, GrantKind::Refund(lookup_id), credits, reason, actor).await?;
    audit_log::record(&tx, workspace, &Event::CreditsRefunded(lookup_id, reason), actor).await?;
    tx.commit().await?;
    Ok((id, column::credits(credits)))
}

async fn check_not_refunded(tx: &impl GenericClient, lookup_id: LookupId) -> Result<(), PostgresError> {
    let select = "SELECT at FROM credit_grant WHERE lookup_id = $1";
    match tx.query_opt(select, &[&Uuid(lookup_id)]).await? {
        Some(row) => Err(StoreError::AlreadyRefunded { lookup_id, at: time(row.get(0)) }.into()),
        None => Ok(()),
    }
}

/// Corrects the granted credits.
pub(crate) async fn adjust(
    client: &mut Client,
    id: &WorkspaceId,
    credits: NonZeroI64,
    reason: &str,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let workspace = live_workspace_rowid(&tx, id).await?;
    let select = "SELECT granted - used FROM workspace WHERE rowid = $1 FOR NO KEY UPDATE";
    let available = column::credits(tx.query_one(select, &[&workspace]).await?.get(0));
    if credits.is_negative() && available < credits.get().unsigned_abs() {
        return Err(StoreError::Overdrawn { available }.into());
    }
    insert(&tx, workspace, GrantKind::Adjustment, credits.get(), reason, actor).await?;
    audit_log::record(&tx, workspace, &Event::CreditsAdjusted(credits.get(), reason), actor).await?;
    Ok(tx.commit().await?)
}

/// Adds a row, and its credits to the granted total.
async fn insert(
    tx: &impl GenericClient,
    workspace: i64,
    kind: GrantKind,
    credits: i64,
    reason: &str,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let select = "SELECT granted FROM workspace WHERE rowid = $1 FOR NO KEY UPDATE";
    let granted = credits::add_grant(tx.query_one(select, &[&workspace]).await?.get(0), credits)?;
    let insert = "INSERT INTO credit_grant (workspace, kind, lookup_id, credits, reason, at) VALUES ($1, $2, $3, $4, $5, $6)";
    let values: [Value<'_>; 6] =
        [&workspace, &kind.as_str(), &kind.lookup_id().map(Uuid), &credits, &reason, &at(actor.now)];
    tx.execute(insert, &values).await?;
    tx.execute("UPDATE workspace SET granted = $1 WHERE rowid = $2", &[&granted, &workspace]).await?;
    Ok(())
}
