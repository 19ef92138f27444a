//! Verifies totals against their rows, in one snapshot, while nodes serve.

use enrich_store::records::{Audit, AuditRow, Tally, missing_trigger};
use tokio_postgres::{IsolationLevel, Row, Transaction};

use crate::column::{credits, key_id, parsed};
use crate::error::PostgresError;
use crate::pool::Client;

/// The triggers that keep the ledger tables and the audit log append-only.
const TRIGGERS: [&str; 4] =
    ["credit_grant_append_only", "credit_spend_append_only", "credit_spend_kept", "audit_event_append_only"];

/// The constraint that prevents a negative balance.
const CONSTRAINT: &str = "used_within_granted";

/// Adds up all rows in one snapshot. Runs without a timeout.
pub(crate) async fn run(client: &mut Client) -> Result<Audit, PostgresError> {
    let tx = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let tx = tx.read_only(true).start().await?;
    tx.batch_execute("SET LOCAL statement_timeout = 0").await?;
    let workspaces = workspaces(&tx).await?;
    let mut errors = orphans(&tx).await?;
    errors.extend(usage(&tx).await?);
    errors.extend(unfinished_copies(&tx).await?);
    errors.extend(missing_guards(&tx).await?);
    tx.commit().await?;
    Ok(Audit { workspaces, errors })
}

async fn workspaces(tx: &Transaction<'_>) -> Result<Vec<AuditRow>, PostgresError> {
    let select = "
        WITH grants AS (SELECT workspace, sum(credits)::bigint AS credits FROM credit_grant GROUP BY workspace),
             spends AS (SELECT workspace, sum(credits)::bigint AS credits
                        FROM (SELECT workspace, credits FROM credit_spend
                              UNION ALL SELECT workspace, credits FROM removed_spends) AS s GROUP BY workspace)
        SELECT w.id, w.granted, coalesce(g.credits, 0), w.spent, coalesce(s.credits, 0)
        FROM account w
        LEFT JOIN grants g ON g.workspace = w.rowid
        LEFT JOIN spends s ON s.workspace = w.rowid
        WHERE w.rowid NOT IN (SELECT c.workspace FROM copied_workspace c JOIN copied_store s ON s.id = c.store
                              WHERE s.finished_at IS NULL)
        ORDER BY w.id COLLATE \"C\"";
    let rows = tx.query(select, &[]).await?;
    let audited = |row: &Row| {
        let id = parsed("workspace.id", row.get::<_, &str>(0).parse())?;
        Ok(AuditRow { id, granted: tally(row, 1), spent: tally(row, 3) })
    };
    rows.iter().map(audited).collect()
}

/// Reads a total from this column and the sum of its rows from the next.
fn tally(row: &Row, column: usize) -> Tally {
    Tally { total: credits(row.get(column)), rows: credits(row.get(column + 1)) }
}

/// Finds spends without a workspace. Spends have no foreign key to their workspace.
async fn orphans(tx: &Transaction<'_>) -> Result<Vec<String>, PostgresError> {
    let select = "SELECT count(*) FROM credit_spend s LEFT JOIN workspace w ON w.rowid = s.workspace WHERE w.rowid IS NULL";
    let count: i64 = tx.query_one(select, &[]).await?.get(0);
    Ok(if count > 0 { vec![format!("{count} spends without a workspace")] } else { Vec::new() })
}

/// Finds workspaces whose billed usage differs from the sum of their spends.
async fn usage(tx: &Transaction<'_>) -> Result<Vec<String>, PostgresError> {
    let select = "
        WITH spends AS (SELECT workspace, key, sum(lookups)::bigint AS lookups, sum(credits)::bigint AS credits
                        FROM (SELECT workspace, key, 1 AS lookups, credits FROM credit_spend
                              UNION ALL SELECT workspace, key, lookups, credits FROM removed_spends) AS s GROUP BY workspace, key),
             usage AS (SELECT workspace, key, lookups, credits FROM billed_usage)
        SELECT w.id, key, coalesce(u.lookups, 0), coalesce(u.credits, 0), coalesce(s.lookups, 0), coalesce(s.credits, 0)
        FROM usage u FULL JOIN spends s USING (workspace, key) JOIN workspace w ON w.rowid = workspace
        WHERE coalesce(u.lookups, 0) <> coalesce(s.lookups, 0) OR coalesce(u.credits, 0) <> coalesce(s.credits, 0)
        ORDER BY w.id COLLATE \"C\", key";
    let rows = tx.query(select, &[]).await?;
    let message = |row: &Row| {
        let key = key_id("usage_day.key", row.get(1))?;
        let [counted, credits, lookups, spent] = [2, 3, 4, 5].map(|column| row.get::<_, i64>(column));
        Ok(format!(
            "the usage of {} with {key} is {counted} billed lookups and {credits} credits, but its spends are {lookups} \
             lookups and {spent} credits",
            row.get::<_, &str>(0)
        ))
    };
    rows.iter().map(message).collect()
}

/// Finds workspaces whose copy has not finished. They have no totals yet.
async fn unfinished_copies(tx: &Transaction<'_>) -> Result<Vec<String>, PostgresError> {
    let select = "SELECT w.id FROM copied_workspace c JOIN copied_store s ON s.id = c.store JOIN workspace w ON w.rowid = c.workspace
        WHERE s.finished_at IS NULL ORDER BY w.id COLLATE \"C\"";
    let rows = tx.query(select, &[]).await?;
    let message = |row: &Row| {
        format!("{} is being copied; run `enrich copy` again to finish it", row.get::<_, &str>(0))
    };
    Ok(rows.iter().map(message).collect())
}

async fn missing_guards(tx: &Transaction<'_>) -> Result<Vec<String>, PostgresError> {
    let mut errors = Vec::new();
    for trigger in TRIGGERS {
        let select = "SELECT FROM pg_trigger WHERE tgname = $1 AND tgenabled IN ('O', 'A') AND pg_table_is_visible(tgrelid)";
        if tx.query_opt(select, &[&trigger]).await?.is_none() {
            errors.push(missing_trigger(trigger));
        }
    }
    let select =
        "SELECT FROM pg_constraint WHERE conname = $1 AND convalidated AND pg_table_is_visible(conrelid)";
    if tx.query_opt(select, &[&CONSTRAINT]).await?.is_none() {
        errors.push(format!("the constraint {CONSTRAINT} is missing; a balance can become negative"));
    }
    Ok(errors)
}
