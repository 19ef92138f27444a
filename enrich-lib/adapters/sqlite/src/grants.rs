//! Grants, adjustments and refunds.
//!
//! An adjustment that withdraws credits must not withdraw those that the serving process is about to spend. That process has
//! the accounts in memory, so the command requests the credits from it: see `withdrawals`.

use std::num::NonZeroI64;

use enrich_lib::credit::AccountError;
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_store::records::{GrantKind, GrantRow};
use enrich_store::{Actor, Event, StoreError, credits};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use crate::column::{ms, parsed, time};
use crate::error::SqliteError;
use crate::events;
use crate::workspaces::{live_rowid, rowid};

/// The columns of [`GrantRow`] in `credit_grant`.
pub(crate) const COLUMNS: &str = "kind, lookup_id, credits, reason, at";

/// Reads the columns of [`COLUMNS`] from `first` on.
pub(crate) fn row(row: &Row<'_>, first: usize) -> rusqlite::Result<GrantRow> {
    let lookup_id = row.get::<_, Option<_>>(first + 1)?.map(LookupId::from_bytes);
    Ok(GrantRow {
        kind: parsed(row, first, |name: String| GrantKind::from_columns(&name, lookup_id))?,
        credits: row.get(first + 2)?,
        reason: row.get(first + 3)?,
        at: time(row.get(first + 4)?),
    })
}

/// Reads the rows of a workspace, oldest first.
pub(crate) fn rows(db: &Connection, workspace: &WorkspaceId) -> Result<Vec<GrantRow>, SqliteError> {
    let select = format!("SELECT {COLUMNS} FROM credit_grant WHERE workspace = ? ORDER BY rowid");
    let mut select = db.prepare(&select)?;
    let rows = select.query_map([rowid(db, workspace)?], |columns| row(columns, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Grants credits.
pub(crate) fn grant(
    tx: &Transaction<'_>,
    workspace: i64,
    credits: u64,
    actor: &Actor<'_>,
) -> Result<(), SqliteError> {
    insert(tx, workspace, GrantKind::Grant, credits::granted(credits)?, "", actor)?;
    events::record(tx, workspace, Event::CreditsGranted(credits), actor)
}

/// Refunds a spend. Returns its workspace and credits.
pub(crate) fn refund(
    tx: &Transaction<'_>,
    lookup_id: LookupId,
    reason: &str,
    actor: &Actor<'_>,
) -> Result<(WorkspaceId, u64), SqliteError> {
    let select = "SELECT at FROM credit_grant WHERE lookup_id = ?";
    let refunded_at = tx.query_row(select, [lookup_id.as_bytes()], |row| row.get(0)).optional()?;
    if let Some(at) = refunded_at.map(time) {
        return Err(StoreError::AlreadyRefunded { lookup_id, at }.into());
    }
    let select = "SELECT w.id, s.credits FROM credit_spend s JOIN workspace w ON w.rowid = s.workspace WHERE s.lookup_id = ?";
    let spend = tx.query_row(select, [lookup_id.as_bytes()], |row| {
        Ok((parsed(row, 0, |id: String| id.parse())?, row.get::<_, u64>(1)?))
    });
    let (id, credits) = spend.optional()?.ok_or(StoreError::UnknownSpend(lookup_id))?;
    let workspace = live_rowid(tx, &id)?;
    insert(tx, workspace, GrantKind::Refund(lookup_id), credits::granted(credits)?, reason, actor)?;
    events::record(tx, workspace, Event::CreditsRefunded(lookup_id, reason), actor)?;
    Ok((id, credits))
}

/// An adjustment in progress.
pub(crate) struct Adjustment<'a> {
    pub(crate) workspace: &'a WorkspaceId,
    pub(crate) credits: NonZeroI64,
    pub(crate) reason: &'a str,
    pub(crate) actor: &'a Actor<'a>,
    /// The row of the withdrawal that was requested from the serving process.
    pub(crate) withdrawal: Option<i64>,
}

/// The outcome of one attempt.
pub(crate) enum Attempt {
    /// The adjustment is complete.
    Done,
    /// The serving process has not taken the credits yet.
    Waiting,
    /// Only this number of credits is available. Nothing was changed.
    Overdrawn(u64),
}

impl Adjustment<'_> {
    /// Completes the adjustment if that is possible, or else requests the credits. Call it again while it is waiting.
    pub(crate) fn attempt(&mut self, tx: &Transaction<'_>, is_served: bool) -> Result<Attempt, SqliteError> {
        let workspace = live_rowid(tx, self.workspace)?;
        if self.credits.is_negative() {
            let needed = self.credits.get().unsigned_abs();
            match self.available(tx, workspace, is_served)? {
                Some(available) if available < needed => {
                    self.cancel(tx)?;
                    return Ok(Attempt::Overdrawn(available));
                }
                Some(_) => self.cancel(tx)?,
                None => {
                    self.request(tx, workspace)?;
                    return Ok(Attempt::Waiting);
                }
            }
        }
        let (credits, reason, actor) = (self.credits.get(), self.reason, self.actor);
        insert(tx, workspace, GrantKind::Adjustment, credits, reason, actor)?;
        events::record(tx, workspace, Event::CreditsAdjusted(credits, reason), actor)?;
        Ok(Attempt::Done)
    }

    /// Returns the credits that the serving process has found, or those in the database if there is none. A process cannot begin to
    /// serve during the transaction.
    fn available(
        &self,
        tx: &Transaction<'_>,
        workspace: i64,
        is_served: bool,
    ) -> Result<Option<u64>, SqliteError> {
        if !is_served {
            let select = "SELECT granted - spent FROM account WHERE rowid = ?";
            return Ok(Some(tx.query_row(select, [workspace], |row| row.get(0))?));
        }
        let select = "SELECT available FROM withdrawal WHERE rowid = ?";
        let available = tx.query_row(select, [self.withdrawal], |row| row.get(0)).optional()?;
        Ok(available.flatten())
    }

    /// Requests the credits from the serving process. A process that begins to serve deletes earlier requests.
    fn request(&mut self, tx: &Transaction<'_>, workspace: i64) -> Result<(), SqliteError> {
        let select = "SELECT 1 FROM withdrawal WHERE rowid = ?";
        if !tx.prepare_cached(select)?.exists([self.withdrawal])? {
            let credits =
                i64::try_from(self.credits.get().unsigned_abs()).map_err(|_| AccountError::TooLarge)?;
            tx.execute("INSERT INTO withdrawal (workspace, credits) VALUES (?, ?)", [workspace, credits])?;
            self.withdrawal = Some(tx.last_insert_rowid());
        }
        Ok(())
    }

    /// Deletes the request. The serving process then takes its credits from the grants again.
    pub(crate) fn cancel(&self, tx: &Transaction<'_>) -> Result<(), SqliteError> {
        tx.execute("DELETE FROM withdrawal WHERE rowid = ?", [self.withdrawal])?;
        Ok(())
    }
}

/// Adds a row, and its credits to the granted total.
fn insert(
    tx: &Transaction<'_>,
    workspace: i64,
    kind: GrantKind,
    credits: i64,
    reason: &str,
    actor: &Actor<'_>,
) -> Result<(), SqliteError> {
    let select = "SELECT granted FROM workspace WHERE rowid = ?";
    let granted = credits::add_grant(tx.query_row(select, [workspace], |row| row.get(0))?, credits)?;
    let insert = "INSERT INTO credit_grant (workspace, kind, lookup_id, credits, reason, at) VALUES (?, ?, ?, ?, ?, ?)";
    let lookup_id = kind.lookup_id();
    let lookup_id = lookup_id.as_ref().map(LookupId::as_bytes);
    tx.execute(insert, params![workspace, kind.as_str(), lookup_id, credits, reason, ms(actor.now)])?;
    tx.execute("UPDATE workspace SET granted = ? WHERE rowid = ?", [granted, workspace])?;
    Ok(())
}
