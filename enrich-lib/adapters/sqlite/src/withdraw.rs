//! Withdrawals of available credits by a command.
//!
//! A withdrawal must not take credits that the serving process is about to spend. That process has the accounts in memory, so the
//! command requests the credits from it: see `withdrawals`.

use std::time::Duration;

use enrich_store::StoreError;
use enrich_store::accounts::{Tx, adjust, lock_live};
use enrich_store::credits::WITHDRAWAL_TIMEOUT;
use enrich_store::database::{Access, Adjustment, Database};
use enrich_store::value::values;

use crate::database::pause;
use crate::dir::DataDir;

/// How often a withdrawal checks whether the serving process has taken the credits.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Withdraws the credits. Waits for the process that serves `dir`.
pub(crate) async fn run(
    database: &mut dyn Database,
    dir: &DataDir,
    adjustment: &Adjustment<'_>,
) -> Result<(), StoreError> {
    let mut withdrawal = Withdrawal { adjustment, rowid: None };
    for _ in 0..WITHDRAWAL_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
        let mut tx = database.begin(Access::Write).await?;
        let attempt = withdrawal.attempt(&mut *tx, dir.is_served()).await?;
        tx.commit().await?;
        match attempt {
            Attempt::Done => return Ok(()),
            Attempt::Overdrawn(available) => return Err(StoreError::Overdrawn { available }),
            Attempt::Waiting => pause(POLL_INTERVAL),
        }
    }
    let mut tx = database.begin(Access::Write).await?;
    withdrawal.cancel(&mut *tx).await?;
    tx.commit().await?;
    Err(StoreError::NotWithdrawn)
}

/// A withdrawal in progress.
struct Withdrawal<'a> {
    adjustment: &'a Adjustment<'a>,
    /// The row of the request to the serving process.
    rowid: Option<i64>,
}

/// The outcome of one attempt.
enum Attempt {
    /// The withdrawal is complete.
    Done,
    /// The serving process has not taken the credits yet.
    Waiting,
    /// Only this number of credits is available. Nothing was changed.
    Overdrawn(u64),
}

impl Withdrawal<'_> {
    /// Completes the withdrawal if that is possible, or else requests the credits. Call it again while it is waiting.
    async fn attempt(&mut self, tx: &mut Tx<'_>, is_served: bool) -> Result<Attempt, StoreError> {
        let workspace = lock_live(tx, self.adjustment.workspace).await?;
        let Some(available) = self.available(tx, workspace, is_served).await? else {
            self.request(tx, workspace).await?;
            return Ok(Attempt::Waiting);
        };
        self.cancel(tx).await?;
        if available < self.adjustment.credits.get().unsigned_abs() {
            return Ok(Attempt::Overdrawn(available));
        }
        adjust(tx, workspace, self.adjustment).await?;
        Ok(Attempt::Done)
    }

    /// Returns the credits that the serving process has found, or those in the database if there is none. A process cannot begin to
    /// serve during the transaction.
    async fn available(
        &self,
        tx: &mut Tx<'_>,
        workspace: i64,
        is_served: bool,
    ) -> Result<Option<u64>, StoreError> {
        if !is_served {
            let select = "SELECT granted - spent FROM account WHERE rowid = $1";
            return tx.value(select, values![workspace]).await;
        }
        let select = "SELECT available FROM withdrawal WHERE rowid = $1";
        let row = tx.row(select, values![self.rowid]).await?;
        row.map_or(Ok(None), |mut row| row.read())
    }

    /// Requests the credits from the serving process. A process that begins to serve deletes earlier requests.
    async fn request(&mut self, tx: &mut Tx<'_>, workspace: i64) -> Result<(), StoreError> {
        let select = "SELECT rowid FROM withdrawal WHERE rowid = $1";
        if !tx.exists(select, values![self.rowid]).await? {
            let insert = "INSERT INTO withdrawal (workspace, credits) VALUES ($1, $2) RETURNING rowid";
            let credits = self.adjustment.credits.get().unsigned_abs();
            self.rowid = Some(tx.value(insert, values![workspace, credits]).await?);
        }
        Ok(())
    }

    /// Deletes the request. The serving process then takes its credits from the grants again.
    async fn cancel(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.execute("DELETE FROM withdrawal WHERE rowid = $1", values![self.rowid]).await?;
        Ok(())
    }
}
