//! Verifies totals against their rows, in one snapshot, while nodes serve.

use enrich_store::records::{Audit, AuditRow, Tally, missing_trigger};
use tokio_postgres::{IsolationLevel, Row, Transaction};

use crate::column::{credits, key_id, parsed};
use crate::error::PostgresError;
use crate::pool::Client;

/// The triggers that keep the ledger tables and the audit log append-only.
const TRIGGERS: [&str; 4] =
    ["credit_grant_append_only", "credit_spend_append_only", "credit_spend_kept", "audit_event_append_only"];

/// The constraints that prevent a negative balance.
const CONSTRAINTS: [&str; 2] = ["spent_and_leased_within_granted", "spent_and_returned_within_taken"];

/// Adds up all rows in one snapshot. Runs without a timeout.
pub(crate) async fn run(client: &mut Client) -> Result<Audit, PostgresError> {
    let tx = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let tx = tx.read_only(true).start().await?;
    tx.batch_execute("SET LOCAL statement_timeout = 0").await?;
    let workspaces = workspaces(&tx).await?;
    let mut errors = orphans(&tx).await?;
    errors.extend(leases(&tx).await?);
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
                              UNION ALL SELECT workspace, credits FROM removed_spend) AS s GROUP BY workspace),
             leases AS (SELECT workspace, sum(taken - returned - spent)::bigint AS credits FROM lease GROUP BY workspace)
        SELECT w.id, w.granted, coalesce(g.credits, 0), w.spent, coalesce(s.credits, 0), w.leased, coalesce(l.credits, 0)
        FROM account w
        LEFT JOIN grants g ON g.workspace = w.rowid
        LEFT JOIN spends s ON s.workspace = w.rowid
        LEFT JOIN leases l ON l.workspace = w.rowid
        WHERE w.rowid NOT IN (SELECT c.workspace FROM copied_workspace c JOIN copied_store s ON s.id = c.store
                              WHERE s.finished_at IS NULL)
        ORDER BY w.id COLLATE \"C\"";
    let rows = tx.query(select, &[]).await?;
    let audited = |row: &Row| {
        let id = parsed("workspace.id", row.get::<_, &str>(0).parse())?;
        Ok(AuditRow { id, granted: tally(row, 1), spent: tally(row, 3), leased: tally(row, 5) })
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

/// Finds leases whose spent total exceeds the sum of their spends. Earlier leases of the same session have spends as well.
async fn leases(tx: &Transaction<'_>) -> Result<Vec<String>, PostgresError> {
    let select = "
        WITH spends AS (SELECT s.workspace, s.epoch, sum(s.credits)::bigint AS credits
                      FROM (SELECT workspace, epoch, credits FROM credit_spend
                            UNION ALL SELECT workspace, epoch, credits FROM removed_spend) AS s
                      WHERE s.epoch IN (SELECT epoch FROM node) GROUP BY s.workspace, s.epoch)
        SELECT w.id, n.name, l.spent, coalesce(p.credits, 0)
        FROM lease l JOIN workspace w ON w.rowid = l.workspace JOIN node n ON n.epoch = l.epoch
        LEFT JOIN spends p ON p.workspace = l.workspace AND p.epoch = l.epoch
        WHERE l.spent > coalesce(p.credits, 0) ORDER BY w.id COLLATE \"C\", l.epoch";
    let rows = tx.query(select, &[]).await?;
    let message = |row: &Row| {
        let (workspace, node, total, spends): (&str, &str, i64, i64) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        format!(
            "the lease of node {node} on {workspace} has spent {total} credits, but its rows sum to {spends}"
        )
    };
    Ok(rows.iter().map(message).collect())
}

/// Finds workspaces whose billed usage differs from the sum of their spends.
async fn usage(tx: &Transaction<'_>) -> Result<Vec<String>, PostgresError> {
    let select = "
        WITH spends AS (SELECT workspace, key, sum(lookups)::bigint AS lookups, sum(credits)::bigint AS credits
                        FROM (SELECT workspace, key, 1 AS lookups, credits FROM credit_spend
                              UNION ALL SELECT workspace, key, lookups, credits FROM removed_spend) AS s GROUP BY workspace, key),
             usage AS (SELECT workspace, key, sum(lookups)::bigint AS lookups, sum(credits)::bigint AS credits
                       FROM usage_day WHERE outcome = 'billed' GROUP BY workspace, key)
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
    for constraint in CONSTRAINTS {
        let select =
            "SELECT FROM pg_constraint WHERE conname = $1 AND convalidated AND pg_table_is_visible(conrelid)";
        if tx.query_opt(select, &[&constraint]).await?.is_none() {
            errors.push(format!("the constraint {constraint} is missing; a balance can become negative"));
        }
    }
    Ok(errors)
}
