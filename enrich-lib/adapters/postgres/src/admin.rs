//! Operator commands for workspaces, keys and grants. They can run while nodes serve the same database.

use std::fmt;
use std::num::NonZeroI64;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::window::Quota;
use enrich_store::records::{Audit, GrantRow, KeyRow, NewKey, Refund, SpendPage, WorkspaceRow};
use enrich_store::usage::{Day, UsageRow};
use enrich_store::workspace::{WorkspaceChange, WorkspaceProperties};
use enrich_store::{Actor, Event, StoreError};
use tokio::time::timeout;

use crate::column::{credits, day, day_number, key_id, live_workspace_rowid, workspace_rowid};
use crate::connect::Server;
use crate::database;
use crate::error::PostgresError;
use crate::pool::{Client, command_settings};
use crate::{api_keys, audit, audit_log, grants, spend_rows, workspaces};

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
        let settings = command_settings(STATEMENT_TIMEOUT);
        let client = timeout(CONNECT_TIMEOUT, Client::connect(server, &settings)).await;
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
        let rowid = workspaces::insert(&tx, id, &WorkspaceProperties::new(quota), now).await?;
        audit_log::record(&tx, rowid, &Event::WorkspaceCreated(id), &Actor::operator(now)).await?;
        if credits > 0 {
            grants::grant(&tx, rowid, credits, &Actor::operator(now)).await?;
        }
        tx.commit().await.map_err(driver)
    }

    async fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, StoreError> {
        Ok(workspaces::rows(&self.client, "true", &[]).await?)
    }

    async fn workspace(&mut self, id: &WorkspaceId) -> Result<WorkspaceRow, StoreError> {
        let rows = workspaces::rows(&self.client, "w.id = $1", &[&id.as_str()]).await?;
        rows.into_iter().next().ok_or_else(|| StoreError::UnknownWorkspace(id.clone()))
    }

    async fn low_balances(&mut self) -> Result<Vec<WorkspaceRow>, StoreError> {
        Ok(workspaces::low_balances(&self.client).await?)
    }

    async fn change_workspace(
        &mut self,
        id: &WorkspaceId,
        changes: &[WorkspaceChange<'_>],
        actor: &Actor<'_>,
    ) -> Result<WorkspaceRow, StoreError> {
        workspaces::change(&mut self.client, id, changes, actor).await?;
        self.workspace(id).await
    }

    async fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, StoreError> {
        let tx = self.client.transaction().await.map_err(driver)?;
        let rowid = live_workspace_rowid(&tx, workspace).await?;
        grants::grant(&tx, rowid, credits, &Actor::operator(now)).await?;
        tx.commit().await.map_err(driver)?;
        self.balance(workspace).await
    }

    async fn adjust(
        &mut self,
        workspace: &WorkspaceId,
        credits: NonZeroI64,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Balance, StoreError> {
        grants::adjust(&mut self.client, workspace, credits, reason, actor).await?;
        self.balance(workspace).await
    }

    async fn refund(
        &mut self,
        lookup_id: LookupId,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Refund, StoreError> {
        let (workspace, credits) = grants::refund(&mut self.client, lookup_id, reason, actor).await?;
        let balance = self.balance(&workspace).await?;
        Ok(Refund { workspace, credits, balance })
    }

    async fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        Ok(self.workspace(workspace).await?.balance)
    }

    async fn grants(&mut self, workspace: &WorkspaceId) -> Result<Vec<GrantRow>, StoreError> {
        Ok(grants::rows(&self.client, workspace).await?)
    }

    async fn create_key(&mut self, key: &NewKey<'_>, actor: &Actor<'_>) -> Result<KeyId, StoreError> {
        Ok(api_keys::create(&mut self.client, key, actor).await?)
    }

    async fn keys(&mut self, workspace: &WorkspaceId, today: Day) -> Result<Vec<KeyRow>, StoreError> {
        Ok(api_keys::list(&self.client, workspace, today).await?)
    }

    async fn key_page(
        &mut self,
        workspace: &WorkspaceId,
        now: Timestamp,
        offset: u32,
        limit: u32,
    ) -> Result<Vec<KeyRow>, StoreError> {
        Ok(api_keys::page(&self.client, workspace, now, offset, limit).await?)
    }

    async fn key(&mut self, workspace: &WorkspaceId, id: KeyId, today: Day) -> Result<KeyRow, StoreError> {
        Ok(api_keys::find(&self.client, workspace, id, today).await?)
    }

    async fn revoke_key(&mut self, id: KeyId, actor: &Actor<'_>) -> Result<(), StoreError> {
        Ok(api_keys::revoke(&mut self.client, id, actor).await?)
    }

    async fn set_key_enabled(
        &mut self,
        id: KeyId,
        is_enabled: bool,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(api_keys::set_enabled(&mut self.client, id, is_enabled, actor).await?)
    }

    async fn rotate_key(
        &mut self,
        id: KeyId,
        new: &ApiKey,
        old_expires_at: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<KeyId, StoreError> {
        Ok(api_keys::rotate(&mut self.client, id, new, old_expires_at, actor).await?)
    }

    async fn usage(
        &mut self,
        workspace: &WorkspaceId,
        first: Day,
        last: Day,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let select = "SELECT day, key, outcome, lookups, credits FROM usage_day
             WHERE workspace = $1 AND day BETWEEN $2 AND $3 AND lookups > 0 ORDER BY day, key, outcome COLLATE \"C\"";
        let workspace = workspace_rowid(&*self.client, workspace).await?;
        let (first, last) = (day_number(first), day_number(last));
        let rows = self.client.query(select, &[&workspace, &first, &last]).await.map_err(driver)?;
        rows.iter()
            .map(|row| {
                Ok(UsageRow {
                    day: day(row.get(0)),
                    key: key_id("usage_day.key", row.get(1))?,
                    outcome: row.get(2),
                    lookups: credits(row.get(3)),
                    credits: credits(row.get(4)),
                })
            })
            .collect()
    }

    async fn spends(
        &mut self,
        workspace: &WorkspaceId,
        first: LookupId,
        end: LookupId,
    ) -> Result<SpendPage, StoreError> {
        Ok(spend_rows::page(&self.client, workspace, first, end).await?)
    }

    async fn remove_spends(&mut self, before: Day) -> Result<u64, StoreError> {
        Ok(spend_rows::remove(&self.client, before).await?)
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

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
