//! Verifies that the totals match the sums of the rows. Any process can run it while another one serves.

use enrich_store::records::{Audit, AuditRow, Tally, missing_trigger};
use enrich_store::usage::BILLED;
use rusqlite::{Connection, Row};

use crate::admin::Admin;
use crate::column::parsed;
use crate::error::SqliteError;

/// The triggers that keep the ledger tables and the audit log append-only.
const TRIGGERS: [&str; 6] = [
    "credit_grant_no_update",
    "credit_grant_no_delete",
    "credit_spend_no_update",
    "credit_spend_no_delete",
    "audit_event_no_update",
    "audit_event_no_delete",
];

/// Queries that count inconsistent rows.
const ORPHANS: [(&str, &str); 3] = [
    (
        "grants without a workspace",
        "SELECT count(*) FROM credit_grant WHERE workspace NOT IN (SELECT rowid FROM workspace)",
    ),
    (
        "spends without a workspace",
        "SELECT count(*) FROM credit_spend WHERE workspace NOT IN (SELECT rowid FROM workspace)",
    ),
    ("workspaces with more credits spent than granted", "SELECT count(*) FROM account WHERE spent > granted"),
];

impl Admin {
    /// Adds up all rows in one snapshot and checks the integrity of the file.
    pub fn audit(&mut self) -> Result<Audit, SqliteError> {
        let tx = self.read()?;
        let mut errors = orphans(&tx)?;
        let workspaces = workspaces(&tx, &mut errors)?;
        errors.extend(missing_triggers(&tx)?);
        errors.extend(damage(&tx)?);
        Ok(Audit { workspaces, errors })
    }
}

/// Reads the totals and the sums of the rows. Adds an error for each workspace whose billed usage differs from its spends.
fn workspaces(db: &Connection, errors: &mut Vec<String>) -> Result<Vec<AuditRow>, SqliteError> {
    let mut select = db.prepare(
        "WITH grants AS (SELECT workspace, sum(credits) AS credits FROM credit_grant GROUP BY workspace),
              spends AS (SELECT workspace, sum(credits) AS credits, sum(lookups) AS lookups
                         FROM (SELECT workspace, credits, 1 AS lookups FROM credit_spend
                               UNION ALL SELECT workspace, credits, lookups FROM removed_spends) GROUP BY workspace),
              usage AS (SELECT workspace, sum(credits) AS credits, sum(lookups) AS lookups
                        FROM (SELECT workspace, credits, lookups FROM usage_day WHERE outcome = ?
                              UNION ALL SELECT workspace, credits, lookups FROM usage_in_tail) GROUP BY workspace)
         SELECT w.id, w.granted, coalesce(g.credits, 0), w.spent, coalesce(s.credits, 0), coalesce(s.lookups, 0),
                coalesce(u.credits, 0), coalesce(u.lookups, 0)
         FROM account w LEFT JOIN grants g ON g.workspace = w.rowid LEFT JOIN spends s ON s.workspace = w.rowid
         LEFT JOIN usage u ON u.workspace = w.rowid ORDER BY w.id",
    )?;
    let rows = select.query_and_then([BILLED], |row| {
        let [credits, lookups]: [i64; 2] = [row.get(4)?, row.get(5)?];
        let [used, counted]: [i64; 2] = [row.get(6)?, row.get(7)?];
        if (credits, lookups) != (used, counted) {
            let id: String = row.get(0)?;
            errors.push(format!(
                "the usage of {id} counts {counted} billed lookups ({used} credits), but there are {lookups} spends ({credits} credits)"
            ));
        }
        Ok(AuditRow {
            id: parsed(row, 0, |id: String| id.parse())?,
            granted: tally(row, 1)?,
            spent: tally(row, 3)?,
            leased: Tally::default(),
        })
    })?;
    rows.collect()
}

/// Reads a total from `column` and the sum of its rows from the next column.
fn tally(row: &Row<'_>, column: usize) -> rusqlite::Result<Tally> {
    Ok(Tally { total: row.get(column)?, rows: row.get(column + 1)? })
}

fn orphans(db: &Connection) -> Result<Vec<String>, SqliteError> {
    let mut errors = Vec::new();
    for (what, count) in ORPHANS {
        let count: u64 = db.query_row(count, [], |row| row.get(0))?;
        if count > 0 {
            errors.push(format!("{count} {what}"));
        }
    }
    Ok(errors)
}

fn missing_triggers(db: &Connection) -> Result<Vec<String>, SqliteError> {
    let mut select = db.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = ?")?;
    let mut errors = Vec::new();
    for trigger in TRIGGERS {
        if !select.exists([trigger])? {
            errors.push(missing_trigger(trigger));
        }
    }
    Ok(errors)
}

/// Returns the errors that SQLite's integrity check finds in the file.
fn damage(db: &Connection) -> Result<Vec<String>, SqliteError> {
    let mut select = db.prepare("PRAGMA integrity_check")?;
    let found = select.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    Ok(found
        .into_iter()
        .filter(|line| line != "ok")
        .map(|line| format!("the file is damaged: {line}"))
        .collect())
}
