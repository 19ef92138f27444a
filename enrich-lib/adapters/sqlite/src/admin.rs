//! Operator commands: workspaces, keys and grants. They work while another process serves the same data.

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::window::Quota;
use enrich_store::records::{Audit, KeyRow, WorkspaceRow};
use enrich_store::{StoreError, credits};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use crate::column::{ms, parsed, time};
use crate::database::{self, Schema};
use crate::dir::DataDir;
use crate::error::SqliteError;

/// Administrative access to the accounts of a data directory.
#[derive(Debug)]
pub struct Admin {
    db: Connection,
    dir: DataDir,
}

impl Admin {
    /// Opens the accounts of `dir` and creates them if they do not exist.
    pub fn open(dir: &DataDir) -> Result<Self, SqliteError> {
        Ok(Self { db: database::create(&dir.accounts(), Schema::Accounts)?, dir: dir.clone() })
    }

    /// Creates a workspace with `credits`.
    ///
    /// Errors: [`StoreError::WorkspaceExists`], [`StoreError::Account`] if `credits` is too large.
    pub fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), SqliteError> {
        self.write(|tx| {
            let made = tx.execute(
                "INSERT INTO workspace (id, quota_limit, window_seconds, created_at) VALUES (?, ?, ?, ?)
                 ON CONFLICT (id) DO NOTHING",
                params![id.as_str(), quota.limit(), quota.window_seconds(), ms(now)],
            )?;
            if made == 0 {
                return Err(StoreError::WorkspaceExists(id.clone()).into());
            }
            if credits > 0 {
                grant(tx, tx.last_insert_rowid(), credits, now)?;
            }
            Ok(())
        })
    }

    /// Returns all workspaces, by name.
    pub fn workspaces(&self) -> Result<Vec<WorkspaceRow>, SqliteError> {
        let is_served = self.dir.is_served();
        let mut select = self.db.prepare(
            "SELECT a.granted, a.spent, a.held, w.id, w.quota_limit, w.window_seconds, w.created_at
             FROM account a JOIN workspace w USING (rowid) ORDER BY w.id",
        )?;
        let rows = select.query_and_then([], |row| {
            Ok(WorkspaceRow {
                balance: balance(row, is_served)?,
                id: parsed(row, 3, |id: String| id.parse())?,
                quota: parsed(row, 4, |limit| Quota::new(limit, row.get(5).unwrap_or_default()))?,
                created_at: time(row.get(6)?),
            })
        })?;
        rows.collect()
    }

    /// Grants `credits` to `workspace` and returns its new balance.
    pub fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, SqliteError> {
        self.write(|tx| grant(tx, rowid(tx, workspace)?, credits, now))?;
        self.balance(workspace)
    }

    /// Returns the credits of `workspace`. The held credits are up to one second old.
    pub fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, SqliteError> {
        let select = "SELECT granted, spent, held FROM account WHERE id = ?";
        let is_served = self.dir.is_served();
        let row =
            self.db.query_row(select, [workspace.as_str()], |row| balance(row, is_served)).optional()?;
        row.ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()).into())
    }

    /// Stores a new key of `workspace` and returns its id.
    pub fn create_key(
        &mut self,
        workspace: &WorkspaceId,
        label: &str,
        key: &ApiKey,
        now: Timestamp,
    ) -> Result<String, SqliteError> {
        let digest = key.digest();
        let id = digest.key_id();
        self.write(|tx| {
            tx.execute(
                "INSERT INTO api_key (id, workspace, label, digest, masked, created_at) VALUES (?, ?, ?, ?, ?, ?)",
                params![id, rowid(tx, workspace)?, label, digest.as_bytes(), key.masked(), ms(now)],
            )?;
            Ok(())
        })?;
        Ok(id)
    }

    /// Returns the keys of `workspace`, oldest first.
    pub fn keys(&self, workspace: &WorkspaceId) -> Result<Vec<KeyRow>, SqliteError> {
        let mut select = self.db.prepare(
            "SELECT id, label, masked, created_at, last_used_at, revoked_at FROM api_key
             WHERE workspace = ? ORDER BY rowid",
        )?;
        let rows = select.query_map([rowid(&self.db, workspace)?], |row| {
            Ok(KeyRow {
                id: row.get(0)?,
                label: row.get(1)?,
                masked: row.get(2)?,
                created_at: time(row.get(3)?),
                last_used_at: row.get::<_, Option<_>>(4)?.map(time),
                revoked_at: row.get::<_, Option<_>>(5)?.map(time),
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Revokes a key permanently. A key that is already revoked keeps its first revocation date.
    pub fn revoke_key(&mut self, id: &str, now: Timestamp) -> Result<(), SqliteError> {
        let update = "UPDATE api_key SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?";
        self.write(|tx| match tx.execute(update, params![ms(now), id])? {
            0 => Err(StoreError::UnknownKey(id.to_owned()).into()),
            _ => Ok(()),
        })
    }

    /// Begins a read transaction, which sees one snapshot of the data.
    pub(crate) fn read(&mut self) -> Result<Transaction<'_>, SqliteError> {
        Ok(self.db.transaction_with_behavior(TransactionBehavior::Deferred)?)
    }

    fn write<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, SqliteError>,
    ) -> Result<T, SqliteError> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.dir.check_not_moved()?; // inside the transaction, because an export waits for it
        let done = work(&tx)?;
        tx.commit()?;
        Ok(done)
    }
}

/// The operations run on the caller's thread and block it.
#[async_trait]
impl enrich_store::Admin for Admin {
    async fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        Ok(Self::create_workspace(self, id, quota, credits, now)?)
    }

    async fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, StoreError> {
        Ok(Self::workspaces(self)?)
    }

    async fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, StoreError> {
        Ok(Self::grant(self, workspace, credits, now)?)
    }

    async fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        Ok(Self::balance(self, workspace)?)
    }

    async fn create_key(
        &mut self,
        workspace: &WorkspaceId,
        label: &str,
        key: &ApiKey,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        Ok(Self::create_key(self, workspace, label, key, now)?)
    }

    async fn keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<KeyRow>, StoreError> {
        Ok(Self::keys(self, workspace)?)
    }

    async fn revoke_key(&mut self, id: &str, now: Timestamp) -> Result<(), StoreError> {
        Ok(Self::revoke_key(self, id, now)?)
    }

    async fn audit(&mut self) -> Result<Audit, StoreError> {
        Ok(Self::audit(self)?)
    }
}

fn grant(tx: &Transaction<'_>, workspace: i64, credits: u64, now: Timestamp) -> Result<(), SqliteError> {
    let select = "SELECT granted FROM workspace WHERE rowid = ?";
    let granted = tx.query_row(select, [workspace], |row| row.get(0))?;
    let (credits, granted) = credits::add_grant(granted, credits)?;
    let insert = "INSERT INTO credit_grant (workspace, credits, at) VALUES (?, ?, ?)";
    tx.execute(insert, params![workspace, credits, ms(now)])?;
    tx.execute("UPDATE workspace SET granted = ? WHERE rowid = ?", [granted, workspace])?;
    Ok(())
}

fn rowid(db: &Connection, workspace: &WorkspaceId) -> Result<i64, SqliteError> {
    let select = "SELECT rowid FROM workspace WHERE id = ?";
    let row = db.query_row(select, [workspace.as_str()], |row| row.get(0)).optional()?;
    row.ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()).into())
}

/// Reads granted, spent and held credits from the first three columns. Holds end with the process that serves.
fn balance(row: &Row<'_>, is_served: bool) -> rusqlite::Result<Balance> {
    let (granted, spent, held): (u64, u64, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(credits::balance(granted, spent, if is_served { held } else { 0 }))
}
