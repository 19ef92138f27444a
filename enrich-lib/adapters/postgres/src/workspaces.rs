//! Statements about workspaces.

use enrich_lib::credit::Balance;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::window::Quota;
use enrich_store::records::WorkspaceRow;
use enrich_store::workspace::{WorkspaceChange, WorkspaceProperties};
use enrich_store::{Actor, StoreError};
use tokio_postgres::{GenericClient, Row};

use crate::audit_log;
use crate::column::{at, bigint, credits, live_workspace_rowid, parsed, time, workspace_rowid};
use crate::error::PostgresError;
use crate::pool::{Client, Value};

/// The columns of [`WorkspaceProperties`] in `workspace`.
const PROPERTIES: &str =
    "w.quota_limit, w.window_seconds, w.display_name, w.low_balance, w.suspended_at, w.deleted_at";

/// Inserts a workspace and returns its row id.
///
/// Errors: [`StoreError::WorkspaceExists`], [`StoreError::WorkspaceDeleted`].
pub(crate) async fn insert(
    tx: &impl GenericClient,
    id: &WorkspaceId,
    properties: &WorkspaceProperties,
    created_at: Timestamp,
) -> Result<i64, PostgresError> {
    let insert = "INSERT INTO workspace
             (id, created_at, quota_limit, window_seconds, display_name, low_balance, suspended_at, deleted_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING RETURNING rowid";
    let WorkspaceProperties { quota, display_name, low_balance, suspended_at, deleted_at } = properties;
    let ((limit, window), low_balance) = (quota_columns(*quota), bigint(*low_balance));
    let [suspended_at, deleted_at] = [suspended_at, deleted_at].map(|time| time.map(at));
    let (id_text, created_at) = (id.as_str(), at(created_at));
    let values: [Value<'_>; 8] =
        [&id_text, &created_at, &limit, &window, display_name, &low_balance, &suspended_at, &deleted_at];
    match tx.query_opt(insert, &values).await? {
        Some(row) => Ok(row.get(0)),
        None => {
            live_workspace_rowid(tx, id).await?;
            Err(StoreError::WorkspaceExists(id.clone()).into())
        }
    }
}

/// Reads the workspaces that match `condition`, by name.
pub(crate) async fn rows(
    client: &Client,
    condition: &str,
    values: &[Value<'_>],
) -> Result<Vec<WorkspaceRow>, PostgresError> {
    let select = format!(
        "SELECT a.granted, a.spent, a.held, w.id, w.created_at, {PROPERTIES}
         FROM account a JOIN workspace w USING (rowid) WHERE {condition} ORDER BY w.id COLLATE \"C\""
    );
    let rows = client.query(&select, values).await?;
    rows.iter()
        .map(|row| {
            Ok(WorkspaceRow {
                balance: balance(row),
                id: parsed("workspace.id", row.get::<_, &str>(3).parse())?,
                created_at: time(row.get(4)),
                properties: properties(row, 5)?,
            })
        })
        .collect()
}

/// Reads the workspaces whose balance is low.
pub(crate) async fn low_balances(client: &Client) -> Result<Vec<WorkspaceRow>, PostgresError> {
    let condition =
        "w.low_balance > 0 AND w.deleted_at IS NULL AND a.granted - a.spent - a.held < w.low_balance";
    rows(client, condition, &[]).await
}

/// Changes a workspace. The lock of its row serializes changes.
pub(crate) async fn change(
    client: &mut Client,
    id: &WorkspaceId,
    changes: &[WorkspaceChange<'_>],
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let workspace = workspace_rowid(&tx, id).await?;
    let select = format!("SELECT {PROPERTIES} FROM workspace w WHERE rowid = $1 FOR NO KEY UPDATE");
    let mut new = properties(&tx.query_one(&select, &[&workspace]).await?, 0)?;
    for change in changes {
        if let Some(event) = new.apply(id, change, actor.now)? {
            audit_log::record(&tx, workspace, &event, actor).await?;
        }
    }
    let update =
        "UPDATE workspace SET quota_limit = $2, window_seconds = $3, display_name = $4, low_balance = $5,
             suspended_at = $6, deleted_at = $7
         WHERE rowid = $1";
    let WorkspaceProperties { quota, display_name, low_balance, suspended_at, deleted_at } = &new;
    let ((limit, window), low_balance) = (quota_columns(*quota), bigint(*low_balance));
    let [suspended_at, deleted_at] = [suspended_at, deleted_at].map(|time| time.map(at));
    let values: [Value<'_>; 7] =
        [&workspace, &limit, &window, display_name, &low_balance, &suspended_at, &deleted_at];
    tx.execute(update, &values).await?;
    Ok(tx.commit().await?)
}

/// Reads a balance from the first three columns: granted, spent, held.
fn balance(row: &Row) -> Balance {
    let [granted, spent, held] = [0, 1, 2].map(|column| credits(row.get(column)));
    enrich_store::credits::balance(granted, spent, held)
}

/// Converts a quota to its two columns.
fn quota_columns(quota: Quota) -> (i64, i32) {
    (bigint(quota.limit().into()), i32::try_from(quota.window_seconds()).unwrap_or(i32::MAX))
}

/// Reads the columns of [`PROPERTIES`] from `first` on.
fn properties(row: &Row, first: usize) -> Result<WorkspaceProperties, PostgresError> {
    let (limit, window): (i64, i32) = (row.get(first), row.get(first + 1));
    let [limit, window] = [limit, window.into()].map(|number: i64| u32::try_from(number).unwrap_or(0));
    Ok(WorkspaceProperties {
        quota: parsed("workspace.quota_limit", Quota::new(limit, window))?,
        display_name: row.get(first + 2),
        low_balance: credits(row.get(first + 3)),
        suspended_at: row.get::<_, Option<_>>(first + 4).map(time),
        deleted_at: row.get::<_, Option<_>>(first + 5).map(time),
    })
}
