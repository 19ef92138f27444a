//! Withdrawals of available credits by a command.
//!
//! The process that serves has the accounts in memory, and must not spend credits that a command withdraws.
//! The command therefore only requests the withdrawal, and the writer executes it in one transaction:
//!
//! ```text
//! command   inserts a row ────────────────────────────────────────────────► deletes the row
//! writer                   takes the credits, changes the grants, sets `available`
//! ```
//!
//! The credits were withdrawn if as many were available. Without a process that serves, the command executes
//! it.

use std::time::Duration;

use enrich_store::accounts::{Tx, adjust, lock_live};
use enrich_store::credits::WITHDRAWAL_TIMEOUT;
use enrich_store::database::{Access, Adjustment, Database};
use enrich_store::value::values;
use enrich_store::{Event, StoreError};

use super::database::pause;
use super::dir::DataDir;

/// How often a withdrawal checks whether the serving process has executed it.
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
    let attempt = withdrawal.give_up(&mut *tx).await?;
    tx.commit().await?;
    match attempt {
        Attempt::Done => Ok(()),
        Attempt::Overdrawn(available) => Err(StoreError::Overdrawn { available }),
        Attempt::Waiting => Err(StoreError::NotWithdrawn),
    }
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
    /// The serving process has not executed the request yet.
    Waiting,
    /// Only this number of credits is available. Nothing was changed.
    Overdrawn(u64),
}

impl Withdrawal<'_> {
    /// Requests the withdrawal, or completes it if that is possible. Call it again while it is waiting.
    async fn attempt(&mut self, tx: &mut Tx<'_>, is_served: bool) -> Result<Attempt, StoreError> {
        if let Some(available) = self.take_result(tx).await? {
            return Ok(self.outcome(available));
        }
        // A process that begins to serve deletes the requests of commands that waited for an earlier one.
        let select = "SELECT rowid FROM withdrawal WHERE rowid = $1";
        if is_served && tx.exists(select, values![self.rowid]).await? {
            return Ok(Attempt::Waiting);
        }
        let workspace = lock_live(tx, self.adjustment.workspace).await?;
        if is_served {
            self.request(tx, workspace).await?;
            return Ok(Attempt::Waiting);
        }
        // A process cannot begin to serve during the transaction.
        self.cancel(tx).await?;
        let select = "SELECT granted - spent FROM account WHERE rowid = $1";
        let outcome = self.outcome(tx.value(select, values![workspace]).await?);
        if let Attempt::Done = outcome {
            adjust(tx, workspace, self.adjustment).await?;
        }
        Ok(outcome)
    }

    /// Ends the request. Returns [`Attempt::Waiting`] if it was not executed and never will be.
    async fn give_up(&self, tx: &mut Tx<'_>) -> Result<Attempt, StoreError> {
        if let Some(available) = self.take_result(tx).await? {
            return Ok(self.outcome(available));
        }
        self.cancel(tx).await?;
        Ok(Attempt::Waiting)
    }

    fn outcome(&self, available: u64) -> Attempt {
        let is_enough = available >= self.adjustment.credits.get().unsigned_abs();
        if is_enough { Attempt::Done } else { Attempt::Overdrawn(available) }
    }

    /// Returns the credits that were available when the request was executed, if it was, and deletes it.
    async fn take_result(&self, tx: &mut Tx<'_>) -> Result<Option<u64>, StoreError> {
        let delete = "DELETE FROM withdrawal WHERE rowid = $1 AND available IS NOT NULL RETURNING available";
        let row = tx.row(delete, values![self.rowid]).await?;
        row.map(|mut row| row.read()).transpose()
    }

    async fn request(&mut self, tx: &mut Tx<'_>, workspace: i64) -> Result<(), StoreError> {
        let Adjustment { credits, reason, actor, .. } = *self.adjustment;
        // The rights of a session could end before the request is executed.
        if actor.authority.is_some() {
            return Err(StoreError::NotAllowed);
        }
        let event = Event::CreditsAdjusted(credits.get(), reason);
        let (credits, subject) = (credits.get().unsigned_abs(), event.subject());
        let insert =
            "INSERT INTO withdrawal (workspace, credits, reason, at, actor, address, action, subject)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING rowid";
        let row = values![
            workspace,
            credits,
            reason,
            actor.now,
            actor.name,
            actor.address,
            event.action().as_str(),
            subject
        ];
        self.rowid = Some(tx.value(insert, row).await?);
        Ok(())
    }

    async fn cancel(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.execute("DELETE FROM withdrawal WHERE rowid = $1", values![self.rowid]).await?;
        Ok(())
    }
}
