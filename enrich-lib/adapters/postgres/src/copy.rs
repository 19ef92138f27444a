//! Copies the accounts of another store into this one.
//!
//! Rows are copied in chunks. Each chunk is a transaction that also records the progress, so that an
//! interrupted copy resumes there. The last transaction adds the keys and totals, and only if all rows are
//! present. Until then, the copied workspaces cannot spend.

use std::collections::BTreeMap;
use std::fmt;

use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_store::records::{Contents, CopiedConsole, CopiedGrant, CopiedKey, CopiedSpend, CopiedWorkspace};
use enrich_store::workspace::WorkspaceProperties;
use tokio_postgres::Transaction;

use crate::column::{Uuid, at, bigint, credits, key_id, key_number};
use crate::connect::engine::connect;
use crate::connect::pool::{Client, Parameter};
use crate::connect::server::Server;
use crate::copy_console;
use crate::error::PostgresError;

/// A copy in progress.
pub struct Copy {
    client: Client,
    store: Uuid,
    progress: CopyProgress,
    /// The row ids of the workspaces in this store, by their row ids in the source store.
    rowids: BTreeMap<i64, i64>,
}

/// The progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// The number of rows copied: grants and spends.
    pub rows: u64,
    /// The source row id of the last grant copied.
    pub grants: i64,
    /// The lookup id of the last spend copied.
    pub spends: Option<LookupId>,
    /// True if the copy is complete and its workspaces are usable.
    pub is_finished: bool,
}

/// A workspace whose contents differ between the two stores.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyDifference {
    /// The workspace's name.
    pub workspace: WorkspaceId,
    /// The contents in the source store.
    pub source: Contents,
    /// The contents in this store.
    pub target: Contents,
}

impl Copy {
    /// Begins or resumes the copy of the store with this id. Runs without a timeout.
    ///
    /// Errors: [`PostgresError::NotCopied`] or [`PostgresError::KeyExists`] if a workspace or key already
    /// exists that is not part of this copy. In that case, nothing is written.
    pub async fn begin(
        server: &Server,
        id: [u8; 16],
        workspaces: &[CopiedWorkspace],
        keys: &[CopiedKey],
        now: Timestamp,
    ) -> Result<Self, PostgresError> {
        let mut client = connect(server).await?;
        client.batch_execute("SET statement_timeout = 0").await?;
        let store = Uuid(LookupId::from_bytes(id));
        let tx = client.transaction().await?;
        let insert = "INSERT INTO copied_store (id, started_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        if tx.execute(insert, &[&store, &at(now)]).await? == 1 {
            check_keys(&tx, keys).await?;
            for workspace in workspaces {
                create_workspace(&tx, &store, workspace).await?;
            }
        }
        let select = "SELECT grants, spends, finished_at IS NOT NULL, rows FROM copied_store WHERE id = $1";
        let row = tx.query_one(select, &[&store]).await?;
        let progress = CopyProgress {
            grants: row.get(0),
            spends: row.get::<_, Option<Uuid>>(1).map(|id| id.0),
            is_finished: row.get(2),
            rows: credits(row.get(3)),
        };
        let select = "SELECT source_rowid, workspace FROM copied_workspace WHERE store = $1";
        let rowids = tx.query(select, &[&store]).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
        tx.commit().await?;
        Ok(Self { client, store, progress, rowids })
    }

    /// Returns the progress of the copy.
    pub fn progress(&self) -> CopyProgress {
        self.progress
    }

    /// Copies grants. They must be ordered by row id.
    pub async fn add_grants(&mut self, grants: &[CopiedGrant]) -> Result<(), PostgresError> {
        let Some(last) = grants.last() else { return Ok(()) };
        let count = bigint(grants.len() as u64);
        let workspaces = self.rowids(grants.iter().map(|grant| grant.workspace))?;
        let kinds: Vec<_> = grants.iter().map(|grant| grant.row.kind.as_str()).collect();
        let lookups: Vec<_> = grants.iter().map(|grant| grant.row.kind.lookup_id().map(Uuid)).collect();
        let counts: Vec<_> = grants.iter().map(|grant| grant.row.credits).collect();
        let reasons: Vec<_> = grants.iter().map(|grant| grant.row.reason.as_str()).collect();
        let times: Vec<_> = grants.iter().map(|grant| at(grant.row.at)).collect();
        let tx = self.client.transaction().await?;
        let update = "UPDATE copied_store SET grants = $3, rows = rows + $4 WHERE id = $1 AND grants = $2";
        check_progress(
            tx.execute(update, &[&self.store, &self.progress.grants, &last.rowid, &count]).await?,
        )?;
        tx.execute(
            "INSERT INTO credit_grant (workspace, kind, lookup_id, credits, reason, at)
             SELECT i.workspace, i.kind, i.lookup_id, i.credits, i.reason, i.at
             FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bigint[], $5::text[], $6::bigint[])
                 WITH ORDINALITY AS i (workspace, kind, lookup_id, credits, reason, at, n) ORDER BY i.n",
            &[&workspaces, &kinds, &lookups, &counts, &reasons, &times],
        )
        .await?;
        tx.commit().await?;
        self.progress.rows += grants.len() as u64;
        self.progress.grants = last.rowid;
        Ok(())
    }

    /// Copies spends. They must be ordered by lookup id.
    pub async fn add_spends(&mut self, spends: &[CopiedSpend]) -> Result<(), PostgresError> {
        let Some(last) = spends.last() else { return Ok(()) };
        let count = bigint(spends.len() as u64);
        let workspaces = self.rowids(spends.iter().map(|spend| spend.workspace))?;
        let lookups: Vec<_> = spends.iter().map(|spend| Uuid(spend.lookup_id)).collect();
        let ids: Vec<_> = spends.iter().map(|spend| key_number(spend.key)).collect();
        let costs: Vec<_> = spends.iter().map(|spend| bigint(spend.credits)).collect();
        let times: Vec<_> = spends.iter().map(|spend| bigint(spend.at.unix_ms())).collect();
        let tx = self.client.transaction().await?;
        let update = "UPDATE copied_store SET spends = $3, rows = rows + $4 WHERE id = $1 AND spends IS NOT DISTINCT FROM $2";
        let before = self.progress.spends.map(Uuid);
        check_progress(tx.execute(update, &[&self.store, &before, &Uuid(last.lookup_id), &count]).await?)?;
        tx.execute(
            "WITH added AS (
                 INSERT INTO credit_spend (workspace, lookup_id, key, credits, at)
                 SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[])
                 RETURNING workspace, key, credits, at / 86400000 AS day
             )
             INSERT INTO usage_day AS u (day, workspace, key, outcome, lookups, credits)
             SELECT a.day, a.workspace, a.key, 'billed', count(*), sum(a.credits) FROM added a
             GROUP BY a.day, a.workspace, a.key ORDER BY a.day, a.workspace, a.key
             ON CONFLICT (day, workspace, key, outcome)
             DO UPDATE SET lookups = u.lookups + excluded.lookups, credits = u.credits + excluded.credits",
            &[&workspaces, &lookups, &ids, &costs, &times],
        )
        .await?;
        tx.commit().await?;
        self.progress.rows += spends.len() as u64;
        self.progress.spends = Some(last.lookup_id);
        Ok(())
    }

    /// Completes the copy if every workspace has the same contents in both stores. Otherwise changes nothing
    /// and returns the differences. Copies `console` in the same transaction.
    pub async fn finish(
        &mut self,
        workspaces: &[CopiedWorkspace],
        keys: &[CopiedKey],
        console: &CopiedConsole,
        now: Timestamp,
    ) -> Result<Vec<CopyDifference>, PostgresError> {
        let of_workspaces = self.rowids(keys.iter().map(|key| key.workspace))?;
        let tx = self.client.transaction().await?;
        let update = "UPDATE copied_store SET finished_at = $2 WHERE id = $1 AND finished_at IS NULL";
        check_progress(tx.execute(update, &[&self.store, &at(now)]).await?)?;
        for (key, workspace) in keys.iter().zip(of_workspaces) {
            add_key(&tx, key, workspace).await?;
        }
        copy_console::add(&tx, console, &self.rowids).await?;
        let copied = contents(&tx, &self.store).await?;
        let differences = workspaces.iter().filter_map(|workspace| {
            let (id, source) = (workspace.id.clone(), workspace.contents);
            let target = copied.get(&workspace.rowid).copied().unwrap_or_default();
            (target != source).then_some(CopyDifference { workspace: id, source, target })
        });
        let differences: Vec<_> = differences.collect();
        if !differences.is_empty() {
            tx.rollback().await?;
            return Ok(differences);
        }
        for (source_rowid, contents) in copied {
            let update = "UPDATE workspace SET granted = $3, used = $4
                 WHERE rowid = (SELECT workspace FROM copied_workspace WHERE store = $1 AND source_rowid = $2)";
            let (granted, spent) = (bigint(contents.granted), bigint(contents.spent));
            tx.execute(update, &[&self.store, &source_rowid, &granted, &spent]).await?;
        }
        tx.commit().await?;
        self.progress.is_finished = true;
        // Update the planner's statistics after the bulk load.
        self.client
            .batch_execute("ANALYZE credit_grant, credit_spend, api_key, usage_day, audit_event")
            .await?;
        Ok(differences)
    }

    /// Maps source row ids of workspaces to row ids in this store.
    fn rowids(&self, source: impl Iterator<Item = i64>) -> Result<Vec<i64>, PostgresError> {
        source.map(|rowid| copy_console::target_rowid(&self.rowids, rowid)).collect()
    }
}

/// Checks that the progress update matched its row. If not, another process is copying the same store.
fn check_progress(rows: u64) -> Result<(), PostgresError> {
    if rows == 1 { Ok(()) } else { Err(PostgresError::CopyChanged) }
}

async fn check_keys(tx: &Transaction<'_>, keys: &[CopiedKey]) -> Result<(), PostgresError> {
    let ids: Vec<_> = keys.iter().map(|key| key_number(key.row.id)).collect();
    match tx.query_opt("SELECT id FROM api_key WHERE id = ANY ($1) LIMIT 1", &[&ids]).await? {
        Some(row) => Err(PostgresError::KeyExists(key_id("api_key.id", row.get(0))?)),
        None => Ok(()),
    }
}

async fn create_workspace(
    tx: &Transaction<'_>,
    store: &Uuid,
    workspace: &CopiedWorkspace,
) -> Result<(), PostgresError> {
    let insert = "INSERT INTO workspace
             (id, created_at, quota_limit, window_seconds, display_name, low_balance, suspended_at, deleted_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING RETURNING rowid";
    let WorkspaceProperties { quota, display_name, low_balance, suspended_at, deleted_at } =
        &workspace.properties;
    let (id, created) = (workspace.id.as_str(), at(workspace.created_at));
    let (limit, window) = (i64::from(quota.limit()), i64::from(quota.window_seconds()));
    let [suspended, deleted] = [suspended_at, deleted_at].map(|time| time.map(at));
    let low_balance = bigint(*low_balance);
    let values: [Parameter<'_>; 8] =
        [&id, &created, &limit, &window, display_name, &low_balance, &suspended, &deleted];
    let row = tx.query_opt(insert, &values).await?;
    let row = row.ok_or_else(|| PostgresError::NotCopied(workspace.id.clone()))?;
    let rowid: i64 = row.get(0);
    let insert = "INSERT INTO copied_workspace (store, source_rowid, workspace) VALUES ($1, $2, $3)";
    tx.execute(insert, &[store, &workspace.rowid, &rowid]).await?;
    Ok(())
}

async fn add_key(tx: &Transaction<'_>, key: &CopiedKey, workspace: i64) -> Result<(), PostgresError> {
    let insert = "INSERT INTO api_key
             (id, workspace, label, digest, masked, created_by, created_at, last_used_at, expires_at, disabled_at, revoked_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    let (row, digest) = (&key.row, &key.digest.as_bytes()[..]);
    let (id, created) = (key_number(row.id), at(row.created_at));
    let [used, expires, disabled, revoked] =
        [row.last_used_at, row.expires_at, row.disabled_at, row.revoked_at].map(|time| time.map(at));
    let (label, masked, created_by) = (&row.label, &row.masked, &row.created_by);
    let values: [Parameter<'_>; 11] =
        [&id, &workspace, label, &digest, masked, created_by, &created, &used, &expires, &disabled, &revoked];
    tx.execute(insert, &values).await?;
    Ok(())
}

/// Returns the contents of the copied workspaces in this store, by their row ids in the source store.
async fn contents(tx: &Transaction<'_>, store: &Uuid) -> Result<BTreeMap<i64, Contents>, PostgresError> {
    let select = "
        WITH k AS (SELECT workspace, count(*) AS n FROM api_key GROUP BY workspace),
             g AS (SELECT workspace, count(*) AS n, sum(credits)::bigint AS credits FROM credit_grant GROUP BY workspace),
             s AS (SELECT workspace, sum(n)::bigint AS n, sum(credits)::bigint AS credits
                   FROM (SELECT workspace, 1 AS n, credits FROM credit_spend
                         UNION ALL SELECT workspace, 0, credits FROM removed_spends) AS s GROUP BY workspace)
        SELECT c.source_rowid, coalesce(k.n, 0), coalesce(g.n, 0), coalesce(g.credits, 0), coalesce(s.n, 0),
               coalesce(s.credits, 0)
        FROM copied_workspace c LEFT JOIN k USING (workspace) LEFT JOIN g USING (workspace) LEFT JOIN s USING (workspace)
        WHERE c.store = $1";
    let rows = tx.query(select, &[store]).await?;
    let counted = rows.iter().map(|row| {
        let number = |column| credits(row.get(column));
        let [keys, grants, granted] = [1, 2, 3].map(number);
        let [spends, spent] = [4, 5].map(number);
        (row.get(0), Contents { keys, grants, granted, spends, spent })
    });
    Ok(counted.collect())
}

impl fmt::Debug for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copy").field("progress", &self.progress).finish_non_exhaustive()
    }
}
