//! Rows that are copied to another store.

use enrich_lib::model::LookupId;

use super::transaction::Accounts;
use super::usage::usage_row;
use super::{grants, keys, log, members, workspaces};
use crate::error::StoreError;
use crate::records::{
    Contents, CopiedConsole, CopiedGrant, CopiedKey, CopiedSpend, CopiedUser, CopiedWorkspace, RemovedSpends,
};
use crate::usage::BILLED;
use crate::value::values;

impl Accounts {
    /// Returns all workspaces, by name.
    pub async fn copied_workspaces(&mut self) -> Result<Vec<CopiedWorkspace>, StoreError> {
        let select = format!(
            "WITH k AS (SELECT workspace, count(*) AS n FROM api_key GROUP BY workspace),
                  g AS (SELECT workspace, count(*) AS n, CAST(sum(credits) AS BIGINT) AS credits
                        FROM credit_grant GROUP BY workspace),
                  s AS (SELECT workspace, CAST(sum(n) AS BIGINT) AS n, CAST(sum(credits) AS BIGINT) AS credits
                        FROM (SELECT workspace, 1 AS n, credits FROM credit_spend
                              UNION ALL SELECT workspace, 0, credits FROM removed_spends) AS rows GROUP BY workspace)
             SELECT w.rowid, w.id, w.created_at, coalesce(k.n, 0), coalesce(g.n, 0), coalesce(g.credits, 0), coalesce(s.n, 0),
                    coalesce(s.credits, 0), {}
             FROM workspace w LEFT JOIN k ON k.workspace = w.rowid LEFT JOIN g ON g.workspace = w.rowid
             LEFT JOIN s ON s.workspace = w.rowid ORDER BY w.id",
            workspaces::PROPERTIES
        );
        let mut tx = self.read().await?;
        tx.rows(&select, &[], |row| {
            Ok(CopiedWorkspace {
                rowid: row.read()?,
                id: row.read()?,
                created_at: row.read()?,
                contents: Contents {
                    keys: row.read()?,
                    grants: row.read()?,
                    granted: row.read()?,
                    spends: row.read()?,
                    spent: row.read()?,
                },
                properties: workspaces::properties(row)?,
            })
        })
        .await
    }

    /// Returns all keys, oldest first.
    pub async fn copied_keys(&mut self) -> Result<Vec<CopiedKey>, StoreError> {
        let (columns, tables) = (keys::COLUMNS, keys::TABLES);
        let select = format!("SELECT k.workspace, k.digest, {columns} FROM {tables} ORDER BY k.rowid");
        let mut tx = self.read().await?;
        tx.rows(&select, &[], |row| {
            Ok(CopiedKey { workspace: row.read()?, digest: row.read()?, row: keys::key_row(row)? })
        })
        .await
    }

    /// Returns up to `limit` grants, adjustments and refunds with a rowid greater than `after`.
    pub async fn copied_grants(&mut self, after: i64, limit: u32) -> Result<Vec<CopiedGrant>, StoreError> {
        let columns = grants::COLUMNS;
        let select = format!(
            "SELECT rowid, workspace, {columns} FROM credit_grant WHERE rowid > $1 ORDER BY rowid LIMIT $2"
        );
        let mut tx = self.read().await?;
        tx.rows(&select, values![after, limit], |row| {
            Ok(CopiedGrant { rowid: row.read()?, workspace: row.read()?, row: grants::grant_row(row)? })
        })
        .await
    }

    /// Returns up to `limit` spends with a lookup id greater than `after`.
    pub async fn copied_spends(
        &mut self,
        after: Option<LookupId>,
        limit: u32,
    ) -> Result<Vec<CopiedSpend>, StoreError> {
        let select = "SELECT lookup_id, workspace, key, credits, at FROM credit_spend WHERE lookup_id > $1
             ORDER BY lookup_id LIMIT $2";
        let after: &[u8] = after.as_ref().map_or(&[], |id| id.as_bytes());
        let mut tx = self.read().await?;
        tx.rows(select, values![after, limit], |row| {
            Ok(CopiedSpend {
                lookup_id: row.read()?,
                workspace: row.read()?,
                key: row.read()?,
                credits: row.read()?,
                at: row.read()?,
            })
        })
        .await
    }

    /// Returns the users of the web application, the usage that does not follow from the spends, and the
    /// audit log.
    pub async fn copied_console(&mut self) -> Result<CopiedConsole, StoreError> {
        let mut tx = self.read().await?;
        let mut users = Vec::new();
        for user in members::users(&mut *tx, "1 = 1", &[]).await? {
            let workspace =
                tx.value("SELECT workspace FROM member WHERE rowid = $1", values![user.id]).await?;
            let select = "SELECT digest FROM member_recovery_code WHERE member = $1";
            let recovery_codes = tx.rows(select, values![user.id], |row| row.read()).await?;
            users.push(CopiedUser { workspace, user, recovery_codes });
        }
        let usage = "WITH spends AS (
                 SELECT workspace, at / 86400000 AS day, key, count(*) AS lookups, sum(credits) AS credits FROM credit_spend
                 WHERE lookup_id <= (SELECT lookup_id FROM usage_until) AND EXISTS (SELECT 1 FROM removed_spends)
                 GROUP BY 1, 2, 3
             )
             SELECT workspace, day, key, outcome, lookups, credits FROM usage_day WHERE outcome <> $1
             UNION ALL
             SELECT u.workspace, u.day, u.key, u.outcome, u.lookups - coalesce(s.lookups, 0), u.credits - coalesce(s.credits, 0)
             FROM usage_day u LEFT JOIN spends s ON s.workspace = u.workspace AND s.day = u.day AND s.key = u.key
             WHERE u.outcome = $1 AND u.lookups > coalesce(s.lookups, 0) AND EXISTS (SELECT 1 FROM removed_spends)
             ORDER BY 1, 2, 3, 4";
        let usage = tx.rows(usage, values![BILLED], |row| Ok((row.read()?, usage_row(row)?))).await?;
        let removed = "SELECT workspace, key, lookups, credits FROM removed_spends ORDER BY workspace, key";
        let removed = tx.rows(removed, &[], |row| {
            let workspace = row.read()?;
            Ok((workspace, RemovedSpends { key: row.read()?, lookups: row.read()?, credits: row.read()? }))
        });
        let removed = removed.await?;
        let events = format!("SELECT workspace, {} FROM audit_event ORDER BY rowid", log::COLUMNS);
        let audit_log = tx.rows(&events, &[], |row| Ok((row.read()?, log::event(row)?))).await?;
        Ok(CopiedConsole { users, usage, removed, audit_log })
    }
}
