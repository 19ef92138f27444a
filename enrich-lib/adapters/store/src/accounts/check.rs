//! Verifies that the totals match the sums of the rows. Servers can use the accounts meanwhile.

use super::transaction::{Accounts, Tx};
use crate::database::Access;
use crate::error::StoreError;
use crate::records::{Audit, AuditRow, Tally};
use crate::value::Row;

/// Queries that count inconsistent rows.
const ORPHANS: [(&str, &str); 6] = [
    (
        "workspaces without a balance",
        "SELECT count(*) FROM workspace WHERE rowid NOT IN (SELECT rowid FROM account)",
    ),
    (
        "grants without a workspace",
        "SELECT count(*) FROM credit_grant WHERE workspace NOT IN (SELECT rowid FROM workspace)",
    ),
    (
        "spends without a workspace",
        "SELECT count(*) FROM credit_spend WHERE workspace NOT IN (SELECT rowid FROM workspace)",
    ),
    (
        "receipts without a spend",
        "SELECT count(*) FROM credit_receipt r
         LEFT JOIN credit_spend s ON s.lookup_id = r.lookup_id AND s.workspace = r.workspace WHERE s.lookup_id IS NULL",
    ),
    (
        "receipts of refunded spends",
        "SELECT count(*) FROM credit_receipt r JOIN credit_grant g ON g.lookup_id = r.lookup_id",
    ),
    ("workspaces with more credits spent than granted", "SELECT count(*) FROM account WHERE spent > granted"),
];

/// The totals and the sums of the rows.
const TALLIES: &str =
    "WITH grants AS (SELECT workspace, CAST(sum(credits) AS BIGINT) AS credits FROM credit_grant GROUP BY workspace),
          spends AS (SELECT workspace, CAST(sum(credits) AS BIGINT) AS credits
                     FROM (SELECT workspace, credits FROM credit_spend
                           UNION ALL SELECT workspace, credits FROM removed_spends) AS s GROUP BY workspace)
     SELECT w.id, a.granted, coalesce(g.credits, 0), a.spent, coalesce(s.credits, 0)
     FROM account a JOIN workspace w ON w.rowid = a.rowid LEFT JOIN grants g ON g.workspace = a.rowid
     LEFT JOIN spends s ON s.workspace = a.rowid ORDER BY w.id";

/// The keys whose billed usage differs from their spends.
const MISCOUNTED: &str =
    "WITH spends AS (SELECT workspace, key, count(*) AS lookups, CAST(sum(credits) AS BIGINT) AS credits
                     FROM credit_spend GROUP BY workspace, key
                     UNION ALL SELECT workspace, key, lookups, credits FROM removed_spends),
          differences AS (SELECT workspace, key, counted, used, lookups, credits
                          FROM (SELECT workspace, key, CAST(sum(counted) AS BIGINT) AS counted, CAST(sum(used) AS BIGINT) AS used,
                                       CAST(sum(lookups) AS BIGINT) AS lookups, CAST(sum(credits) AS BIGINT) AS credits
                                FROM (SELECT workspace, key, lookups AS counted, credits AS used, 0 AS lookups, 0 AS credits
                                      FROM (SELECT workspace, key, lookups, credits FROM usage_day WHERE outcome = 'billed'
                                            UNION ALL SELECT workspace, key, lookups, credits FROM uncounted_usage) AS billed
                                      UNION ALL SELECT workspace, key, 0, 0, lookups, credits FROM spends) AS both_sides
                                GROUP BY workspace, key) AS sums
                          WHERE counted <> lookups OR used <> credits)
     SELECT w.id, d.key, d.counted, d.used, d.lookups, d.credits
     FROM differences d JOIN workspace w ON w.rowid = d.workspace ORDER BY w.id, d.key";

impl Accounts {
    /// Adds up all rows in one snapshot and compares them with the totals. Checks the files and the schema as
    /// well.
    pub async fn audit(&mut self) -> Result<Audit, StoreError> {
        let faults = self.database.faults().await?;
        let mut tx = self.database.begin(Access::Scan).await?;
        let mut audit = sums(&mut *tx).await?;
        audit.errors.extend(faults);
        Ok(audit)
    }
}

/// Adds up all rows and compares them with the totals.
pub(super) async fn sums(tx: &mut Tx<'_>) -> Result<Audit, StoreError> {
    let mut errors = orphans(tx).await?;
    errors.extend(tx.rows(MISCOUNTED, &[], miscounted).await?);
    Ok(Audit { workspaces: tx.rows(TALLIES, &[], audit_row).await?, errors })
}

async fn orphans(tx: &mut Tx<'_>) -> Result<Vec<String>, StoreError> {
    let mut errors = Vec::new();
    for (what, count) in ORPHANS {
        let count: u64 = tx.value(count, &[]).await?;
        if count > 0 {
            errors.push(format!("{count} {what}"));
        }
    }
    Ok(errors)
}

fn audit_row(row: &mut Row) -> Result<AuditRow, StoreError> {
    Ok(AuditRow { id: row.read()?, granted: tally(row)?, spent: tally(row)? })
}

fn tally(row: &mut Row) -> Result<Tally, StoreError> {
    Ok(Tally { total: row.read()?, rows: row.read()? })
}

fn miscounted(row: &mut Row) -> Result<String, StoreError> {
    let (id, key): (String, enrich_lib::key::KeyId) = (row.read()?, row.read()?);
    let [counted, used, lookups, credits]: [i64; 4] = [row.read()?, row.read()?, row.read()?, row.read()?];
    Ok(format!(
        "the usage of {id} with {key} is {counted} billed lookups and {used} credits, but its spends are {lookups} lookups \
         and {credits} credits"
    ))
}
