//! Operator commands for workspaces, keys and grants. They can run while nodes serve the same database.

use std::fmt;
use std::time::Duration;

use enrich_lib::credit::{AccountError, Balance};
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::records::{KeyRow, WorkspaceRow};
use enrich_lib::window::Quota;
use tokio::time::timeout;
use tokio_postgres::{GenericClient, Row};

use crate::column::{at, bigint, credits, parsed, time};
use crate::connect::Server;
use crate::database;
use crate::error::StoreError;
use crate::pool::Client;

/// The connection timeout of operator commands.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// The statement timeout of operator commands, including waiting for row locks.
const STATEMENT_TIME_MAX: Duration = Duration::from_secs(30);

/// A connection for operator commands.
pub struct Admin {
    pub(crate) client: Client,
}

impl Admin {
    /// Connects to a database with this program's schema version.
    ///
    /// Errors: [`StoreError::Unreachable`], [`StoreError::NotMigrated`], [`StoreError::NewerSchema`].
    pub async fn open(server: &Server) -> Result<Self, StoreError> {
        let connecting = Client::connect(server, STATEMENT_TIME_MAX, || {});
        let client = timeout(CONNECT_TIME_MAX, connecting).await;
        let client = client.unwrap_or(Err(StoreError::TimedOut(CONNECT_TIME_MAX)))?;
        database::check_version(&*client).await?;
        Ok(Self { client })
    }

    /// Creates a workspace with `credits`.
    pub async fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let tx = self.client.transaction().await?;
        let insert =
            "INSERT INTO workspace (id, quota_limit, window_seconds, created_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (id) DO NOTHING RETURNING rowid";
        let (limit, window) = quota_columns(quota);
        let made = tx.query_opt(insert, &[&id.as_str(), &limit, &window, &at(now)]).await?;
        let made = made.ok_or_else(|| StoreError::WorkspaceExists(id.clone()))?;
        if credits > 0 {
            grant(&tx, made.get(0), credits, now).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Returns all workspaces, ordered by name.
    pub async fn workspaces(&self) -> Result<Vec<WorkspaceRow>, StoreError> {
        let select = "SELECT a.granted, a.spent, a.held, w.id, w.quota_limit, w.window_seconds, w.created_at
             FROM account a JOIN workspace w USING (rowid) ORDER BY w.id COLLATE \"C\"";
        let rows = self.client.query(select, &[]).await?;
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

    /// Grants `credits` to `workspace` and returns its new balance.
    pub async fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, StoreError> {
        let tx = self.client.transaction().await?;
        let rowid = rowid(&tx, workspace).await?;
        grant(&tx, rowid, credits, now).await?;
        tx.commit().await?;
        self.balance(workspace).await
    }

    /// Returns the balance of `workspace`. The held credits are up to a second old.
    pub async fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        let select = "SELECT granted, spent, held FROM account WHERE id = $1";
        let row = self.client.query_opt(select, &[&workspace.as_str()]).await?;
        row.map(|row| balance(&row)).ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()))
    }

    /// Stores a new key of `workspace` and returns its id.
    pub async fn create_key(
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
        self.client.execute(insert, &[&id, &workspace, &label, &digest, &key.masked(), &at(now)]).await?;
        Ok(id)
    }

    /// Returns the keys of `workspace`, oldest first.
    pub async fn keys(&self, workspace: &WorkspaceId) -> Result<Vec<KeyRow>, StoreError> {
        let select = "SELECT id, label, masked, created_at, last_used_at, revoked_at FROM api_key
             WHERE workspace = $1 ORDER BY rowid";
        let rows = self.client.query(select, &[&rowid(&*self.client, workspace).await?]).await?;
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

    /// Revokes a key permanently. Revoking it again keeps the original date.
    pub async fn revoke_key(&mut self, id: &str, now: Timestamp) -> Result<(), StoreError> {
        let update = "UPDATE api_key SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2";
        match self.client.execute(update, &[&at(now), &id]).await? {
            0 => Err(StoreError::UnknownKey(id.to_owned())),
            _ => Ok(()),
        }
    }
}

async fn grant(
    tx: &impl GenericClient,
    workspace: i64,
    credits: u64,
    now: Timestamp,
) -> Result<(), StoreError> {
    let credits = i64::try_from(credits).map_err(|_| AccountError::TooLarge)?;
    let select = "SELECT granted FROM workspace WHERE rowid = $1 FOR UPDATE";
    let granted: i64 = tx.query_one(select, &[&workspace]).await?.get(0);
    let granted = granted.checked_add(credits).ok_or(AccountError::TooLarge)?;
    let insert = "INSERT INTO credit_grant (workspace, credits, at) VALUES ($1, $2, $3)";
    tx.execute(insert, &[&workspace, &credits, &at(now)]).await?;
    tx.execute("UPDATE workspace SET granted = $1 WHERE rowid = $2", &[&granted, &workspace]).await?;
    Ok(())
}

async fn rowid(client: &impl GenericClient, workspace: &WorkspaceId) -> Result<i64, StoreError> {
    let row = client.query_opt("SELECT rowid FROM workspace WHERE id = $1", &[&workspace.as_str()]).await?;
    row.map(|row| row.get(0)).ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()))
}

/// Reads a balance from the first three columns: granted, spent, held.
fn balance(row: &Row) -> Balance {
    let [granted, spent, held] = [0, 1, 2].map(|column| credits(row.get(column)));
    Balance { granted, available: granted - spent - held, held, spent }
}

/// Converts a quota to its two columns.
pub(crate) fn quota_columns(quota: Quota) -> (i64, i32) {
    (bigint(quota.limit().into()), i32::try_from(quota.window_seconds()).unwrap_or(i32::MAX))
}

/// Reads a quota from this column and the next.
pub(crate) fn quota(row: &Row, column: usize) -> Result<Quota, StoreError> {
    let (limit, window): (i64, i32) = (row.get(column), row.get(column + 1));
    let [limit, window] = [limit, window.into()].map(|number: i64| u32::try_from(number).unwrap_or(0));
    parsed("workspace.quota_limit", Quota::new(limit, window))
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
