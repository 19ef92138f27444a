//! Operator commands: workspaces, keys and grants. They work while another process serves the same data.

use std::collections::BTreeMap;
use std::num::NonZeroI64;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::window::Quota;
use enrich_store::credits::WITHDRAWAL_TIMEOUT;
use enrich_store::records::{Audit, GrantRow, KeyRow, NewKey, Refund, SpendPage, WorkspaceRow};
use enrich_store::usage::{Day, USES_DAYS, UsageRow};
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Actor, Event, StoreError};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::column::ms;
use crate::database::{self, Schema};
use crate::dir::DataDir;
use crate::error::SqliteError;
use crate::grants::{self, Adjustment, Attempt};
use crate::{events, keys, spend_rows, usage, workspaces};

/// How often an adjustment checks whether the serving process has taken the credits.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Administrative access to the accounts of a data directory.
#[derive(Debug)]
pub struct Admin {
    db: Connection,
    dir: DataDir,
}

impl Admin {
    /// Opens the accounts of `dir` and creates them if they do not exist.
    pub fn open(dir: &DataDir) -> Result<Self, SqliteError> {
        let mut db = database::create(&dir.accounts(), Schema::Accounts)?;
        database::retry_often(&mut db)?;
        Ok(Self { db, dir: dir.clone() })
    }

    /// Creates a workspace with `credits`.
    ///
    /// Errors: [`StoreError::WorkspaceExists`], [`StoreError::WorkspaceDeleted`], [`StoreError::Account`] if `credits` is too large.
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
                workspaces::live_rowid(tx, id)?;
                return Err(StoreError::WorkspaceExists(id.clone()).into());
            }
            let workspace = tx.last_insert_rowid();
            events::record(tx, workspace, Event::WorkspaceCreated(id), &Actor::operator(now))?;
            if credits > 0 {
                grants::grant(tx, workspace, credits, &Actor::operator(now))?;
            }
            Ok(())
        })
    }

    /// Returns all workspaces, by name.
    pub fn workspaces(&self) -> Result<Vec<WorkspaceRow>, SqliteError> {
        workspaces::rows(&self.db, "true", [], self.dir.is_served())
    }

    /// Returns a workspace. The held credits are up to one second old.
    pub fn workspace(&self, id: &WorkspaceId) -> Result<WorkspaceRow, SqliteError> {
        let rows = workspaces::rows(&self.db, "w.id = ?", [id.as_str()], self.dir.is_served())?;
        rows.into_iter().next().ok_or_else(|| StoreError::UnknownWorkspace(id.clone()).into())
    }

    /// Grants `credits` to `workspace` and returns its new balance.
    pub fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, SqliteError> {
        let actor = Actor::operator(now);
        self.write(|tx| grants::grant(tx, workspaces::live_rowid(tx, workspace)?, credits, &actor))?;
        self.balance(workspace)
    }

    /// Corrects the granted credits of `workspace`, and returns its new balance. Waits for the process that serves.
    ///
    /// Errors: [`StoreError::Overdrawn`], [`StoreError::NotWithdrawn`].
    pub fn adjust(
        &mut self,
        workspace: &WorkspaceId,
        credits: NonZeroI64,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Balance, SqliteError> {
        let dir = self.dir.clone();
        let mut adjustment = Adjustment { workspace, credits, reason, actor, withdrawal: None };
        for _ in 0..WITHDRAWAL_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
            match self.write(|tx| adjustment.attempt(tx, dir.is_served()))? {
                Attempt::Done => return self.balance(workspace),
                Attempt::Overdrawn(available) => return Err(StoreError::Overdrawn { available }.into()),
                Attempt::Waiting => database::pause(POLL_INTERVAL),
            }
        }
        self.write(|tx| adjustment.cancel(tx))?;
        Err(StoreError::NotWithdrawn.into())
    }

    /// Returns the credits of `workspace`. The held credits are up to one second old.
    pub fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, SqliteError> {
        Ok(self.workspace(workspace)?.balance)
    }

    /// Stores a new key and returns its id.
    pub fn create_key(&mut self, key: &NewKey<'_>, actor: &Actor<'_>) -> Result<KeyId, SqliteError> {
        self.write(|tx| {
            let workspace = workspaces::live_rowid(tx, key.workspace)?;
            let id = keys::insert(tx, workspace, key.label, key.key, key.expires_at, actor)?;
            events::record(tx, workspace, Event::KeyCreated(id, key.label), actor)?;
            Ok(id)
        })
    }

    /// Returns the keys of `workspace`, oldest first, with their uses in the days up to `today`.
    pub fn keys(&self, workspace: &WorkspaceId, today: Day) -> Result<Vec<KeyRow>, SqliteError> {
        let workspace = workspaces::rowid(&self.db, workspace)?;
        self.with_uses(workspace, today, keys::rows(&self.db, workspace)?)
    }

    /// Sets the uses of keys in the days up to `today`.
    fn with_uses(
        &self,
        workspace: i64,
        today: Day,
        mut keys: Vec<KeyRow>,
    ) -> Result<Vec<KeyRow>, SqliteError> {
        let mut uses: BTreeMap<KeyId, u64> = BTreeMap::new();
        for row in usage::read(&self.db, workspace, today.minus(USES_DAYS - 1), today)? {
            *uses.entry(row.key).or_default() += row.lookups;
        }
        keys.iter_mut().for_each(|key| key.uses = uses.get(&key.id).copied().unwrap_or_default());
        Ok(keys)
    }

    /// Revokes a key permanently. A key that is already revoked keeps its first revocation date.
    pub fn revoke_key(&mut self, id: KeyId, actor: &Actor<'_>) -> Result<(), SqliteError> {
        self.write(|tx| {
            let (key, row) = keys::row(tx, id)?;
            if row.revoked_at.is_some() {
                return Ok(());
            }
            let update = "UPDATE api_key SET revoked_at = ? WHERE rowid = ?";
            tx.execute(update, params![ms(actor.now), key.rowid])?;
            events::record(tx, key.workspace, Event::KeyRevoked(id, &row.label), actor)
        })
    }

    pub(crate) fn db(&self) -> &Connection {
        &self.db
    }

    /// Begins a read transaction, which sees one snapshot of the data.
    pub(crate) fn read(&mut self) -> Result<Transaction<'_>, SqliteError> {
        Ok(self.db.transaction_with_behavior(TransactionBehavior::Deferred)?)
    }

    pub(crate) fn write<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, SqliteError>,
    ) -> Result<T, SqliteError> {
        let tx = database::begin(&mut self.db)?;
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

    async fn workspace(&mut self, id: &WorkspaceId) -> Result<WorkspaceRow, StoreError> {
        Ok(Self::workspace(self, id)?)
    }

    async fn low_balances(&mut self) -> Result<Vec<WorkspaceRow>, StoreError> {
        Ok(workspaces::low_balances(&self.db, self.dir.is_served())?)
    }

    async fn change_workspace(
        &mut self,
        id: &WorkspaceId,
        changes: &[WorkspaceChange<'_>],
        actor: &Actor<'_>,
    ) -> Result<WorkspaceRow, StoreError> {
        self.write(|tx| workspaces::change(tx, id, changes, actor))?;
        Ok(Self::workspace(self, id)?)
    }

    async fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, StoreError> {
        Ok(Self::grant(self, workspace, credits, now)?)
    }

    async fn adjust(
        &mut self,
        workspace: &WorkspaceId,
        credits: NonZeroI64,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Balance, StoreError> {
        Ok(Self::adjust(self, workspace, credits, reason, actor)?)
    }

    async fn refund(
        &mut self,
        lookup_id: LookupId,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Refund, StoreError> {
        let (workspace, credits) = self.write(|tx| grants::refund(tx, lookup_id, reason, actor))?;
        let balance = Self::balance(self, &workspace)?;
        Ok(Refund { workspace, credits, balance })
    }

    async fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        Ok(Self::balance(self, workspace)?)
    }

    async fn grants(&mut self, workspace: &WorkspaceId) -> Result<Vec<GrantRow>, StoreError> {
        Ok(grants::rows(&self.db, workspace)?)
    }

    async fn create_key(&mut self, key: &NewKey<'_>, actor: &Actor<'_>) -> Result<KeyId, StoreError> {
        Ok(Self::create_key(self, key, actor)?)
    }

    async fn keys(&mut self, workspace: &WorkspaceId, today: Day) -> Result<Vec<KeyRow>, StoreError> {
        Ok(Self::keys(self, workspace, today)?)
    }

    async fn key_page(
        &mut self,
        workspace: &WorkspaceId,
        now: Timestamp,
        offset: u32,
        limit: u32,
    ) -> Result<Vec<KeyRow>, StoreError> {
        let workspace = workspaces::rowid(&self.db, workspace)?;
        let keys = keys::page(&self.db, workspace, now, offset, limit)?;
        Ok(self.with_uses(workspace, Day::of(now), keys)?)
    }

    async fn key(&mut self, workspace: &WorkspaceId, id: KeyId, today: Day) -> Result<KeyRow, StoreError> {
        let workspace = workspaces::rowid(&self.db, workspace)?;
        let key = keys::row_of(&self.db, workspace, id)?;
        let keys = self.with_uses(workspace, today, vec![key])?;
        keys.into_iter().next().ok_or(StoreError::UnknownKey(id))
    }

    async fn revoke_key(&mut self, id: KeyId, actor: &Actor<'_>) -> Result<(), StoreError> {
        Ok(Self::revoke_key(self, id, actor)?)
    }

    async fn set_key_enabled(
        &mut self,
        id: KeyId,
        is_enabled: bool,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| keys::set_enabled(tx, id, is_enabled, actor))?)
    }

    async fn rotate_key(
        &mut self,
        id: KeyId,
        new: &ApiKey,
        old_expires_at: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<KeyId, StoreError> {
        Ok(self.write(|tx| keys::rotate(tx, id, new, old_expires_at, actor))?)
    }

    async fn usage(
        &mut self,
        workspace: &WorkspaceId,
        first: Day,
        last: Day,
    ) -> Result<Vec<UsageRow>, StoreError> {
        Ok(workspaces::rowid(&self.db, workspace)
            .and_then(|workspace| usage::read(&self.db, workspace, first, last))?)
    }

    async fn spends(
        &mut self,
        workspace: &WorkspaceId,
        first: LookupId,
        end: LookupId,
    ) -> Result<SpendPage, StoreError> {
        Ok(workspaces::rowid(&self.db, workspace)
            .and_then(|workspace| spend_rows::page(&self.db, workspace, first, end))?)
    }

    async fn remove_spends(&mut self, before: Day) -> Result<u64, StoreError> {
        Ok(self.write(|tx| spend_rows::remove(tx, before))?)
    }

    async fn fold_usage(&mut self, _: Day) -> Result<u64, StoreError> {
        Ok(0) // one process writes the usage
    }

    async fn audit(&mut self) -> Result<Audit, StoreError> {
        Ok(Self::audit(self)?)
    }
}
