//! Lists of spends, and the removal of old ones.

use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_store::records::{REMOVED_MAX, SpendPage, SpendRow};
use enrich_store::usage::Day;
use tokio_postgres::Row;

use crate::column::{Uuid, credits, key_id, time, time_ms, workspace_rowid};
use crate::error::PostgresError;
use crate::pool::{Client, Value};

/// Reads a page of the spends of a workspace.
pub(crate) async fn page(
    client: &Client,
    workspace: &WorkspaceId,
    first: LookupId,
    end: LookupId,
) -> Result<SpendPage, PostgresError> {
    let workspace = workspace_rowid(&**client, workspace).await?;
    let select = "SELECT lookup_id FROM credit_spend WHERE lookup_id >= $1 AND lookup_id < $2 ORDER BY lookup_id LIMIT 1 OFFSET $3";
    let read_max = i64::from(SpendPage::SPENDS_READ_MAX);
    let next = client.query_opt(select, &[&Uuid(first), &Uuid(end), &read_max]).await?;
    let next = next.map(|row| row.get::<_, Uuid>(0).0);
    let select = "SELECT s.lookup_id, s.key, s.credits, s.at, g.at
         FROM credit_spend s LEFT JOIN credit_grant g ON g.lookup_id = s.lookup_id
         WHERE s.lookup_id >= $1 AND s.lookup_id < $2 AND s.workspace = $3 ORDER BY s.lookup_id";
    let end = Uuid(next.unwrap_or(end));
    let rows = client.query(select, &[&Uuid(first), &end, &workspace]).await?;
    Ok(SpendPage { rows: rows.iter().map(row).collect::<Result<_, _>>()?, next })
}

fn row(row: &Row) -> Result<SpendRow, PostgresError> {
    Ok(SpendRow {
        lookup_id: row.get::<_, Uuid>(0).0,
        key: key_id("credit_spend.key", row.get(1))?,
        credits: credits(row.get(2)),
        at: time_ms(row.get(3)),
        refunded_at: row.get::<_, Option<_>>(4).map(time),
    })
}

/// Removes the oldest spends from before a day. Returns their number.
pub(crate) async fn remove(client: &Client, before: Day) -> Result<u64, PostgresError> {
    let values: [Value<'_>; 2] = [&Uuid(before.first_lookup()), &i64::from(REMOVED_MAX)];
    Ok(credits(client.query_one("SELECT spends_remove($1, $2)", &values).await?.get(0)))
}
