//! Keys and credits of the process that serves.
//!
//! This folder owns the accounts in memory and the thread that writes spends. Holds are in memory and end
//! with the process; grants and spends are on disk. A settlement queues a spend for the writer, which commits
//! all queued spends as one transaction. The spend is acknowledged when it is durable.
//!
//! ```text
//! find, hold ──► shared (memory)          settle ──► batch queue ──► writer ──► commit ──► accounts.db
//! ```
//!
//! Modules are declared in reading order; each uses only those before it.

mod keys;
mod shared;
mod usage;
mod spend;
mod rows;
mod commit;
mod writer_thread;
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{AccountError, Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Workspace;
use enrich_store::batch::{BatchSender, Reply, batch_queue};
use enrich_store::statistics::LedgerStatistics;
use enrich_store::usage::UsageCounter;
use enrich_store::{Clocks, StoreError, TickError};

use self::shared::{CachedAccount, Shared};
use self::spend::{JobResult, Spend};
use self::usage::BilledLookup;
use self::writer::{Job, Writer};
use crate::error::SqliteError;
use crate::files::database::{self, Schema};
use crate::files::dir::{DataDir, LastUse};

pub use self::writer_thread::{Work, run_on_thread};

/// [`Keys`] and [`Credits`] of a data directory.
///
/// Only one process can open a data directory at a time. The directory is free again when the ledger is
/// dropped and its writer has ended.
#[derive(derive_more::Debug)]
#[debug("Ledger {{ .. }}")]
pub struct Ledger {
    shared: Arc<Shared>,
    queue: BatchSender<Job, JobResult>,
}

impl Ledger {
    /// Locks the data directory and starts its writer with `spawn`.
    ///
    /// Other processes' changes take effect with [`tick`](enrich_store::Ledger::tick) and [`Ledger::refresh_keys`].
    ///
    /// The ledger's time is `now`, and then the time of the last tick. `clock` returns the time of a monotonic clock,
    /// whose origin may differ from that of `now`. It times commits, and the age of the keys: if the last refresh is
    /// older than a second, a lookup refreshes the keys itself, and blocks its thread meanwhile.
    ///
    /// If the last process that served the directory was killed, checks the database files first (see
    /// [`DataDir::ended_uncleanly`]).
    ///
    /// Errors: [`SqliteError::Served`] if another process has locked it, [`SqliteError::Moved`] if the
    /// accounts were moved to another store, [`SqliteError::Damaged`].
    pub fn open(
        dir: &DataDir,
        now: Clocks,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
        spawn: impl FnOnce(Work),
    ) -> Result<Self, SqliteError> {
        let lock = dir.lock()?;
        dir.check_not_moved()?;
        dir.check_after_unclean_end(&lock)?;
        let writer_db = database::create(&dir.accounts(), Schema::Accounts)?;
        let shared = Arc::new(Shared::new(|| database::open(&dir.accounts()), lock, now, clock)?);
        let (queue, jobs) = batch_queue();
        let writer = Writer::new(writer_db, shared.clone())?;
        shared.serve.record(LastUse::Served)?;
        spawn(Box::pin(writer.run(jobs)));
        Ok(Self { shared, queue })
    }

    /// Applies changes of keys and workspaces by other processes since the last call. Call it at least twice a second.
    ///
    /// It only reads, so that a revoked key is refused within a second even if the disk does not complete a write.
    /// While the disk does not complete a read, it blocks its thread, and keys are refused.
    pub fn refresh_keys(&self) -> Result<(), SqliteError> {
        self.shared.refresh_keys()
    }

    /// How long a spend waits for the transaction before its own. Afterwards, its lookup is answered with
    /// 500.
    pub const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

    fn withdraw_overdue(&self, now: Duration) {
        let Some(time) = now.checked_sub(Self::QUEUE_TIMEOUT) else { return };
        let is_overdue = |job: &Job| matches!(job, Job::Spend(spend) if spend.queued_at <= time);
        for job in self.queue.remove(is_overdue) {
            if let Job::Spend(spend) = &job.item {
                spend.abort(&self.shared);
            }
            job.reply(Err(StoreError::Withdrawn.into()));
        }
    }

    fn stopped(&self) -> SqliteError {
        self.shared.failure().err().unwrap_or_else(|| StoreError::Stopped.into())
    }

    /// Returns the current credits of a workspace. Spends that are not durable yet are held.
    pub fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, SqliteError> {
        Ok(self.shared.workspace(workspace)?.balance())
    }
}

#[async_trait]
impl Keys for Ledger {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        Ok(self.shared.find_key(key)?)
    }
}

#[async_trait]
impl Credits for Ledger {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.shared.check_writable()?;
        let state = self.shared.workspace(&hold.workspace)?;
        if self.shared.payer(state.rowid, hold)?.is_some()
            && !self.shared.account(&state).tracks(hold.lookup_id)
        {
            let held = self.shared.account(&state).hold(&hold.without_credits());
            return held.map_err(|error| SqliteError::from(error).into());
        }
        let held = self.shared.account(&state).hold(hold);
        held.map_err(|error| SqliteError::from(error).into())
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        let spent = match self.begin(hold, settlement)? {
            Begun::Settled(payer) => return Ok(payer),
            Begun::Queued(spent) => spent,
        };
        match spent.await {
            Some(spent) => Ok(spent?),
            None => {
                let state = self.shared.workspace(&hold.workspace)?;
                self.shared.account(&state).abort_spend(hold.lookup_id);
                Err(self.stopped().into())
            }
        }
    }

    fn keeps_receipts(&self) -> bool {
        true
    }

    fn available(&self, workspace: &WorkspaceId) -> Option<u64> {
        self.balance(workspace).ok().map(|balance| balance.available)
    }
}

/// A settlement that has begun.
enum Begun {
    /// It is complete. Contains the lookup that has paid for the receipt, if that is another one.
    Settled(Option<LookupId>),
    Queued(Reply<JobResult>),
}

impl Ledger {
    /// Begins to settle a hold.
    fn begin(&self, hold: &Hold, settlement: Settlement) -> Result<Begun, SqliteError> {
        let state = self.shared.workspace(&hold.workspace)?;
        let error = match settlement {
            Settlement::Release | Settlement::Spend(0) => match self.shared.account(&state).release(hold) {
                Ok(()) => return Ok(Begun::Settled(None)),
                Err(error) => error,
            },
            Settlement::Spend(credits) => match self.spend(state.clone(), hold, credits) {
                Ok(spent) => return Ok(Begun::Queued(spent)),
                Err(error) => {
                    // The hold takes no credits if its receipt was spent before.
                    if let Some(payer) = self.shared.payer(state.rowid, hold)? {
                        let _ = self.shared.account(&state).release(hold); // there may be no hold
                        if self.shared.spent(state.rowid, hold.lookup_id)?.is_none() {
                            return Ok(Begun::Settled(Some(payer)));
                        }
                        AccountError::NoHold
                    } else {
                        error
                    }
                }
            },
        };
        match error {
            AccountError::NoHold => {
                settlement.without_hold(self.shared.spent(state.rowid, hold.lookup_id)?)?;
                Ok(Begun::Settled(None))
            }
            error => Err(error.into()),
        }
    }

    /// Queues a spend.
    fn spend(
        &self,
        state: Arc<CachedAccount>,
        hold: &Hold,
        credits: u64,
    ) -> Result<Reply<JobResult>, AccountError> {
        self.shared.account(&state).begin_spend(hold, credits)?;
        let queued_at = self.shared.elapsed();
        let lookup = BilledLookup {
            lookup_id: hold.lookup_id,
            workspace: state.rowid,
            key: hold.key,
            at: hold.placed_at,
            credits,
            receipt: hold.receipt,
        };
        Ok(self.queue.send(Job::Spend(Spend { state, lookup, queued_at })))
    }
}

#[async_trait]
impl enrich_store::Ledger for Ledger {
    fn database(&self) -> &'static str {
        "sqlite"
    }

    /// Overdue holds expire, spends that were queued for [`QUEUE_TIMEOUT`](Self::QUEUE_TIMEOUT) are
    /// withdrawn, and grants by other processes since the last tick take effect. Spends that were queued
    /// before the call are durable when it returns, or have failed. While the disk does not respond, it is pending.
    ///
    /// Errors: [`StoreError::NotCommitted`] if the last commit failed, [`StoreError::Stopped`] if the
    /// writer has ended, or an error of the database.
    async fn tick(&self, now: Clocks) -> Result<(), TickError> {
        let ticked = async {
            self.shared.serve.check()?;
            self.shared.set_time(now);
            self.withdraw_overdue(now.elapsed);
            self.queue.send(Job::Tick(now)).await.unwrap_or_else(|| Err(self.stopped()))
        };
        match ticked.await {
            Ok(_) => Ok(()),
            Err(error) if error.is_fatal() => Err(TickError::Fatal(error.into())),
            Err(error) => Err(TickError::Transient(error.into())),
        }
    }

    /// Writes all queued spends and the rest of the state, and moves all commits into `accounts.db`, which is
    /// then complete without its write-ahead log.
    ///
    /// To give the disk time to recover, call [`tick`](enrich_store::Ledger::tick) until it succeeds, and then this.
    async fn close(&self) -> Result<(), StoreError> {
        let closed = self.queue.send(Job::Close);
        self.queue.close();
        closed.await.unwrap_or_else(|| Err(self.stopped()))?;
        Ok(())
    }

    /// Fails if spends cannot be written, because the last commit failed and is not repaired, or a sync has failed, or
    /// if keys are refused, because their changes cannot be read, or if a read of an account does not end.
    fn check(&self) -> Result<(), StoreError> {
        self.shared.check_writable()?;
        self.shared.check_keys()?;
        Ok(self.shared.check_reader()?)
    }

    /// The held credits are those of the last tick.
    fn statistics(&self) -> LedgerStatistics {
        LedgerStatistics {
            credits_held: self.shared.credits_held.load(Ordering::Relaxed),
            queue_depth: self.queue.len() as u64,
            commits: self.shared.commits.snapshot(),
        }
    }

    fn usage(&self) -> &Arc<UsageCounter> {
        &self.shared.usage
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        Ok(self.balance(workspace)?)
    }
}
