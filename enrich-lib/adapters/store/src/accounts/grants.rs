//! Grants, adjustments and refunds.

use std::num::NonZeroI64;

use enrich_lib::credit::Balance;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};

use super::lock::{lock_live, rowid};
use super::log;
use super::transaction::{Accounts, Tx, transact};
use crate::action::Action;
use crate::actor::Actor;
use crate::credits;
use crate::error::StoreError;
use crate::records::{GrantKind, GrantRow, Refund};
use crate::value::{Row, values};

impl Accounts {
    /// Grants `credits` to `workspace` and returns its new balance. The operator is the author of the event
    /// `credits.granted`, whose subject is the number of credits. A repeated call grants again: a caller that may
    /// repeat it, such as the webhook of a payment, records the id of the payment first.
    ///
    /// Errors: [`StoreError::UnknownWorkspace`], [`StoreError::Account`] if the sum is too large.
    pub async fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, StoreError> {
        transact!(self, tx, {
            let rowid = lock_live(tx, workspace).await?;
            grant(tx, rowid, credits, &Actor::operator(now)).await
        })
    }

    /// Corrects the granted credits of `workspace` by `credits`, and returns its new balance. The event is
    /// `credits.adjusted`.
    ///
    /// A negative number withdraws credits that are not spent. On SQLite, lookups may hold them: their spends
    /// then fail.
    ///
    /// Errors: [`StoreError::Overdrawn`], [`StoreError::Account`] if the sum is too large.
    pub async fn adjust(
        &mut self,
        workspace: &WorkspaceId,
        credits: NonZeroI64,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Balance, StoreError> {
        transact!(self, tx, {
            let (rowid, credits) = (lock_live(tx, workspace).await?, credits.get());
            log::record(tx, rowid, Action::CreditsAdjusted, &format!("{credits:+}: {reason}"), actor).await?;
            add(tx, rowid, GrantKind::Adjustment, credits, reason, actor).await
        })
    }

    /// Refunds the credits of a lookup. The spend itself stays, and its receipt is deleted, so that the next
    /// request with its idempotency key pays. The event is `credits.refunded`.
    ///
    /// Errors: [`StoreError::UnknownSpend`], [`StoreError::AlreadyRefunded`].
    pub async fn refund(
        &mut self,
        lookup_id: LookupId,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Refund, StoreError> {
        transact!(self, tx, {
            let select =
                "SELECT w.id, s.credits FROM credit_spend s JOIN workspace w ON w.rowid = s.workspace
                 WHERE s.lookup_id = $1";
            let mut spend = None;
            if let Some(mut row) = tx.row(select, values![&lookup_id]).await? {
                let (id, credits): (WorkspaceId, u64) = (row.read()?, row.read()?);
                spend = Some((lock_live(tx, &id).await?, id, credits));
            }
            // Under the lock, if the spend exists: it may have been removed since its refund.
            let select = "SELECT at FROM credit_grant WHERE lookup_id = $1";
            if let Some(mut row) = tx.row(select, values![&lookup_id]).await? {
                return Err(StoreError::AlreadyRefunded { lookup_id, at: row.read()? });
            }
            let (rowid, workspace, credits) = spend.ok_or(StoreError::UnknownSpend(lookup_id))?;
            let (kind, granted) = (GrantKind::Refund(lookup_id), credits::granted(credits)?);
            tx.execute("DELETE FROM credit_receipt WHERE lookup_id = $1", values![&lookup_id]).await?;
            let subject =
                if reason.is_empty() { lookup_id.to_string() } else { format!("{lookup_id}: {reason}") };
            log::record(tx, rowid, Action::CreditsRefunded, &subject, actor).await?;
            let balance = add(tx, rowid, kind, granted, reason, actor).await?;
            Ok(Refund { workspace, credits, balance })
        })
    }

    /// Returns the grants, adjustments and refunds of `workspace`, oldest first.
    pub async fn grants(&mut self, workspace: &WorkspaceId) -> Result<Vec<GrantRow>, StoreError> {
        let mut tx = self.read().await?;
        let workspace = rowid(&mut *tx, workspace).await?;
        let select = format!("SELECT {COLUMNS} FROM credit_grant WHERE workspace = $1 ORDER BY rowid");
        tx.rows(&select, values![workspace], grant_row).await
    }
}

/// The columns of [`GrantRow`].
pub(super) const COLUMNS: &str = "kind, lookup_id, credits, reason, at";

/// Reads the columns of [`COLUMNS`].
pub(super) fn grant_row(row: &mut Row) -> Result<GrantRow, StoreError> {
    let (kind, lookup_id): (String, _) = (row.read()?, row.read()?);
    let kind = GrantKind::from_columns(&kind, lookup_id);
    Ok(GrantRow {
        kind: kind.map_err(|error| StoreError::Column(error.to_string()))?,
        credits: row.read()?,
        reason: row.read()?,
        at: row.read()?,
    })
}

/// Grants credits to a locked workspace, and returns its new balance.
pub(super) async fn grant(
    tx: &mut Tx<'_>,
    workspace: i64,
    credits: u64,
    actor: &Actor<'_>,
) -> Result<Balance, StoreError> {
    log::record(tx, workspace, Action::CreditsGranted, &credits.to_string(), actor).await?;
    add(tx, workspace, GrantKind::Grant, credits::granted(credits)?, "", actor).await
}

/// Adds a row, and its credits to the granted total, as the last changes of a transaction: lookups wait while
/// the balance is locked, on PostgreSQL for 250 ms at most. Returns the new balance, which is read in the
/// transaction: an error after the commit would be one of a change that was made, and the caller would repeat
/// it.
async fn add(
    tx: &mut Tx<'_>,
    workspace: i64,
    kind: GrantKind,
    credits: i64,
    reason: &str,
    actor: &Actor<'_>,
) -> Result<Balance, StoreError> {
    let select =
        "SELECT granted, spent, held FROM account WHERE id = (SELECT id FROM workspace WHERE rowid = $1)";
    let mut row = tx.row(select, values![workspace]).await?.unwrap_or_default();
    let (before, spent, held): (u64, _, _) = (row.read()?, row.read()?, row.read()?);
    let granted = credits::add_grant(credits::granted(before)?, credits)?;
    let insert = "INSERT INTO credit_grant (workspace, kind, lookup_id, credits, reason, at)
         VALUES ($1, $2, $3, $4, $5, $6)";
    let lookup_id = kind.lookup_id();
    let row = values![workspace, kind.as_str(), lookup_id.as_ref(), credits, reason, actor.now];
    tx.execute(insert, row).await?;
    if credits < 0 {
        let available = tx.value(tx.available(), values![workspace]).await?;
        if available < credits.unsigned_abs() {
            return Err(StoreError::Overdrawn { available });
        }
    }
    tx.execute("UPDATE workspace SET granted = $1 WHERE rowid = $2", values![granted, workspace]).await?;
    Ok(credits::balance(before.saturating_add_signed(credits), spent, held))
}
