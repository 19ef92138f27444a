//! Credits that commands withdraw while this process serves.
//!
//! ```text
//! command   inserts a row ─────────────────────────────► changes the grants and deletes the row
//! writer                   takes the credits ─► sets `available`                      ─► forgets the withdrawal
//! ```
//!
//! A withdrawal takes its credits out of the account in memory before the command changes the grants, so that no lookup can
//! spend them. If the command deletes the row without changing the grants, the account receives them again. The account
//! therefore always has the granted credits without those of the withdrawals in progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::model::WorkspaceId;
use rusqlite::{Connection, Transaction};

use crate::column::parsed;
use crate::error::SqliteError;
use crate::shared::{Shared, WorkspaceState};

/// How long a withdrawal waits for its command. Longer than a command waits for the withdrawal.
const ABANDONED_AFTER: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Withdrawals {
    /// The withdrawals in progress, by row.
    in_progress: BTreeMap<i64, Withdrawal>,
    /// The workspaces of withdrawals whose row was deleted. Their accounts must be compared with the grants.
    ended: Vec<Arc<WorkspaceState>>,
}

struct Withdrawal {
    state: Arc<WorkspaceState>,
    /// The credits that were available.
    available: u64,
    /// The credits that were taken: all that were requested, or none.
    taken: u64,
    begun_at: Duration,
    /// Whether the command can see `available`.
    is_written: bool,
}

impl Withdrawals {
    /// Deletes the requests of commands that waited for an earlier process. They request the credits again.
    pub(crate) fn open(db: &Connection) -> Result<Self, SqliteError> {
        db.execute("DELETE FROM withdrawal", [])?;
        Ok(Self::default())
    }

    /// Takes the credits of new requests, and ends the withdrawals whose row was deleted. Changes nothing if it fails.
    pub(crate) fn read(&mut self, db: &Connection, shared: &Shared) -> Result<(), SqliteError> {
        let mut select = db.prepare_cached(
            "SELECT t.rowid, w.id, t.credits FROM withdrawal t JOIN workspace w ON w.rowid = t.workspace ORDER BY t.rowid",
        )?;
        let requests = select
            .query_map([], |row| Ok((row.get(0)?, parsed(row, 1, |id: String| id.parse())?, row.get(2)?)))?;
        let requests = requests.map(|request| {
            let (rowid, id, credits): (i64, WorkspaceId, u64) = request?;
            Ok((rowid, shared.workspace(&id)?, credits))
        });
        let requests = requests.collect::<Result<Vec<_>, SqliteError>>()?;
        let mut before = std::mem::take(&mut self.in_progress);
        for (rowid, state, credits) in requests {
            let known = before.remove(&rowid);
            let withdrawal = known.unwrap_or_else(|| Withdrawal::begin(state, credits, shared.elapsed()));
            self.in_progress.insert(rowid, withdrawal);
        }
        self.ended.extend(before.into_values().map(|withdrawal| withdrawal.state));
        Ok(())
    }

    /// Returns the workspaces whose accounts must be compared with the grants. Call [`Withdrawals::compared`] afterwards.
    pub(crate) fn ended(&self) -> &[Arc<WorkspaceState>] {
        &self.ended
    }

    /// Records that the accounts of [`Withdrawals::ended`] were compared with the grants.
    pub(crate) fn compared(&mut self) {
        self.ended.clear();
    }

    /// Returns the credits that were taken out of the account.
    pub(crate) fn taken(&self, workspace: i64) -> u64 {
        let of_workspace = self.in_progress.values().filter(|withdrawal| withdrawal.state.rowid == workspace);
        of_workspace.map(|withdrawal| withdrawal.taken).sum()
    }

    /// Returns whether [`Withdrawals::write`] has something to do at `now`.
    pub(crate) fn has_unwritten(&self, now: Duration) -> bool {
        self.in_progress.values().any(|withdrawal| !withdrawal.is_written) || self.has_abandoned(now)
    }

    /// Returns whether the command of a withdrawal has ended without deleting its row.
    pub(crate) fn has_abandoned(&self, now: Duration) -> bool {
        self.in_progress.values().any(|withdrawal| withdrawal.is_abandoned(now))
    }

    /// Shows the available credits to the commands, and deletes abandoned requests. Call [`Withdrawals::written`] after the
    /// commit.
    pub(crate) fn write(&self, tx: &Transaction<'_>, now: Duration) -> Result<(), SqliteError> {
        let mut update = tx.prepare_cached("UPDATE withdrawal SET available = ? WHERE rowid = ?")?;
        let mut delete = tx.prepare_cached("DELETE FROM withdrawal WHERE rowid = ?")?;
        for (rowid, withdrawal) in &self.in_progress {
            if withdrawal.is_abandoned(now) {
                delete.execute([rowid])?;
            } else if !withdrawal.is_written {
                update.execute((i64::try_from(withdrawal.available).unwrap_or(i64::MAX), rowid))?;
            }
        }
        Ok(())
    }

    /// Records the commit of [`Withdrawals::write`].
    pub(crate) fn written(&mut self) {
        self.in_progress.values_mut().for_each(|withdrawal| withdrawal.is_written = true);
    }
}

impl Withdrawal {
    fn begin(state: Arc<WorkspaceState>, credits: u64, now: Duration) -> Self {
        let mut account = state.account();
        let available = account.balance().available;
        let taken = if available >= credits { account.withdraw(credits) } else { 0 };
        drop(account);
        Self { state, available, taken, begun_at: now, is_written: false }
    }

    fn is_abandoned(&self, now: Duration) -> bool {
        now >= self.begun_at + ABANDONED_AFTER
    }
}
