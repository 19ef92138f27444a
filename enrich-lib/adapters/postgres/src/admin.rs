//! Operator commands for workspaces, keys and grants. They can run while nodes serve the same database.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::window::Quota;
use enrich_store::StoreError;
use enrich_store::credits::add_grant;
use enrich_store::records::{Audit, KeyRow, WorkspaceRow};
use tokio::time::timeout;
use tokio_postgres::{GenericClient, Row};

use crate::audit;
use crate::column::{at, bigint, credits, parsed, time};
use crate::connect::Server;
use crate::database;
use crate::error::PostgresError;
use crate::pool::Client;

/// The connection timeout of operator commands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The statement timeout of operator commands, including waiting for row locks.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection for operator commands.
pub struct Admin {
    pub(crate) client: Client,
}

impl Admin {
    /// Connects to a database with this program's schema version.
    ///
    /// Errors: [`PostgresError::Unreachable`], [`PostgresError::NotMigrated`], [`StoreError::NewerSchema`].
    pub async fn open(server: &Server) -> Result<Self, PostgresError> {
        let connecting = Client::connect(server, STATEMENT_TIMEOUT, || {});
        let client = timeout(CONNECT_TIMEOUT, connecting).await;
        let client = client.unwrap_or(Err(PostgresError::TimedOut(CONNECT_TIMEOUT)))?;
        database::check_version(&*client).await?;
        Ok(Self { client })
    }
}

#[async_trait]
impl enrich_store::Admin for Admin {
    async fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let tx = self.client.transaction().await.map_err(driver)?;
        let insert =
            "INSERT INTO workspace (id, quota_limit, window_seconds, created_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (id) DO NOTHING RETURNING rowid";
        let (limit, window) = quota_columns(quota);
        let made = tx.query_opt(insert, &[&id.as_str(), &limit, &window, &at(now)]).await.map_err(driver)?;
        let made = made.ok_or_else(|| StoreError::WorkspaceExists(id.clone()))?;
        if credits > 0 {
            grant(&tx, made.get(0), credits, now).await?;
        }
        tx.commit().await.map_err(driver)
    }

    async fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, StoreError> {
        let select = "SELECT a.granted, a.spent, a.held, w.id, w.quota_limit, w.window_seconds, w.created_at
             FROM account a JOIN workspace w USING (rowid) ORDER BY w.id COLLATE \"C\"";
        let rows = self.client.query(select, &[]).await.map_err(driver)?;
        rows.iter()
            .map(|row| {
                Ok(WorkspaceRow {
                    balance: balance(row),
                    id: parsed("workspace.id", row.get::<_, &str>(3).parse())?,
                    quota: quota(row, 4)?,
                    created_at: time(row.get(6)),
                })
            })
            .collect()
    }

    async fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, StoreError> {
        let tx = self.client.transaction().await.map_err(driver)?;
        let rowid = rowid(&tx, workspace).await?;
        grant(&tx, rowid, credits, now).await?;
        tx.commit().await.map_err(driver)?;
        self.balance(workspace).await
    }

    async fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        let select = "SELECT granted, spent, held FROM account WHERE id = $1";
        let row = self.client.query_opt(select, &[&workspace.as_str()]).await.map_err(driver)?;
        row.map(|row| balance(&row)).ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()))
    }

    async fn create_key(
        &mut self,
        workspace: &WorkspaceId,
        label: &str,
        key: &ApiKey,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let digest = key.digest();
        let id = digest.key_id();
        let workspace = rowid(&*self.client, workspace).await?;
        let insert = "INSERT INTO api_key (id, workspace, label, digest, masked, created_at)
             VALUES ($1, $2, $3, $4, $5, $6)";
        let digest = &digest.as_bytes()[..];
        self.client
            .execute(insert, &[&id, &workspace, &label, &digest, &key.masked(), &at(now)])
            .await
            .map_err(driver)?;
        Ok(id)
    }

    async fn keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<KeyRow>, StoreError> {
        let select = "SELECT id, label, masked, created_at, last_used_at, revoked_at FROM api_key
             WHERE workspace = $1 ORDER BY rowid";
        let workspace = rowid(&*self.client, workspace).await?;
        let rows = self.client.query(select, &[&workspace]).await.map_err(driver)?;
        let key = |row: &Row| KeyRow {
            id: row.get(0),
            label: row.get(1),
            masked: row.get(2),
            created_at: time(row.get(3)),
            last_used_at: row.get::<_, Option<_>>(4).map(time),
            revoked_at: row.get::<_, Option<_>>(5).map(time),
        };
        Ok(rows.iter().map(key).collect())
    }

    async fn revoke_key(&mut self, id: &str, now: Timestamp) -> Result<(), StoreError> {
        let update = "UPDATE api_key SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2";
        match self.client.execute(update, &[&at(now), &id]).await.map_err(driver)? {
            0 => Err(StoreError::UnknownKey(id.to_owned())),
            _ => Ok(()),
        }
    }

    /// Runs without a timeout.
    async fn audit(&mut self) -> Result<Audit, StoreError> {
        Ok(audit::run(&mut self.client).await?)
    }
}

/// Converts an error of the driver.
fn driver(error: tokio_postgres::Error) -> StoreError {
    PostgresError::from(error).into()
}

async fn grant(
    tx: &impl GenericClient,
    workspace: i64,
    credits: u64,
    now: Timestamp,
) -> Result<(), PostgresError> {
    let select = "SELECT granted FROM workspace WHERE rowid = $1 FOR UPDATE";
    let granted = tx.query_one(select, &[&workspace]).await?.get(0);
    let (credits, granted) = add_grant(granted, credits)?;
    let insert = "INSERT INTO credit_grant (workspace, credits, at) VALUES ($1, $2, $3)";
    tx.execute(insert, &[&workspace, &credits, &at(now)]).await?;
    tx.execute("UPDATE workspace SET granted = $1 WHERE rowid = $2", &[&granted, &workspace]).await?;
    Ok(())
}

async fn rowid(client: &impl GenericClient, workspace: &WorkspaceId) -> Result<i64, PostgresError> {
    let row = client.query_opt("SELECT rowid FROM workspace WHERE id = $1", &[&workspace.as_str()]).await?;
    row.map(|row| row.get(0)).ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()).into())
}

/// Reads a balance from the first three columns: granted, spent, held.
fn balance(row: &Row) -> Balance {
    let [granted, spent, held] = [0, 1, 2].map(|column| credits(row.get(column)));
    enrich_store::credits::balance(granted, spent, held)
}

/// Converts a quota to its two columns.
pub(crate) fn quota_columns(quota: Quota) -> (i64, i32) {
    (bigint(quota.limit().into()), i32::try_from(quota.window_seconds()).unwrap_or(i32::MAX))
}

/// Reads a quota from this column and the next.
pub(crate) fn quota(row: &Row, column: usize) -> Result<Quota, PostgresError> {
    let (limit, window): (i64, i32) = (row.get(column), row.get(column + 1));
    let [limit, window] = [limit, window.into()].map(|number: i64| u32::try_from(number).unwrap_or(0));
    parsed("workspace.quota_limit", Quota::new(limit, window))
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
