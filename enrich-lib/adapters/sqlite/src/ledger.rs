//! Keys and credits of the process that serves.
//!
//! Holds are in memory and end with the process; grants and spends are on disk. A spend is queued for the
//! [`crate::writer`], which commits all queued spends as one batch. The spend is acknowledged when it is durable.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{AccountError, Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::WorkspaceId;
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Workspace;
use enrich_store::statistics::LedgerStatistics;
use enrich_store::sync::Mutex;
use enrich_store::usage::UsageCounter;
use enrich_store::{Clocks, StoreError, TickError};

use crate::database::{self, Schema};
use crate::dir::DataDir;
use crate::error::SqliteError;
use crate::queue::{self, queue};
use crate::shared::{Shared, WorkspaceState};
use crate::spend::{QueuedSpend, Spend, WakeBatch};
use crate::sync::oneshot;
use crate::usage::BilledLookup;
use crate::writer::{Job, Writer};
use crate::writer_thread::Work;

/// [`Keys`] and [`Credits`] of a data directory.
///
/// Only one process can open a data directory at a time. The directory is free again when the ledger is dropped and its
/// writer has ended.
pub struct Ledger {
    shared: Arc<Shared>,
    queue: queue::Sender<Job>,
    /// The result of the writer. `None` if [`Ledger::close`] was called.
    end: Mutex<Option<oneshot::Receiver<Result<(), SqliteError>>>>,
}

impl Ledger {
    /// Locks the data directory and starts its writer with `spawn`.
    ///
    /// The ledger reads no clock. Its time is `now`, and then the time of the last [`Ledger::tick`]. A
    /// [`Timestamp`](enrich_lib::model::Timestamp) stands for both clocks.
    ///
    /// If the last process that used the directory was killed, checks the database files first (see
    /// [`DataDir::ended_uncleanly`]).
    ///
    /// Errors: [`SqliteError::Served`] if another process has locked it, [`SqliteError::Moved`] if the accounts were
    /// moved to another store, [`SqliteError::Damaged`].
    pub fn open(
        dir: &DataDir,
        now: impl Into<Clocks>,
        spawn: impl FnOnce(Work),
    ) -> Result<Self, SqliteError> {
        let lock = dir.lock()?;
        dir.check_not_moved()?;
        dir.check_after_unclean_end()?;
        let writer_db = database::create(&dir.accounts(), Schema::Accounts)?;
        let shared = Arc::new(Shared::new(database::open(&dir.accounts())?, lock, now.into())?);
        let (queue, jobs) = queue();
        let (ended, end) = oneshot::channel();
        let writer = Writer::new(writer_db, shared.clone(), ended)?;
        spawn(Box::pin(writer.run(jobs)));
        Ok(Self { shared, queue, end: Mutex::new(Some(end)) })
    }

    /// Advances the ledger's time to `now`. Call it at least twice a second.
    ///
    /// Overdue holds expire, spends that were queued for [`QUEUE_TIMEOUT`](Self::QUEUE_TIMEOUT) are withdrawn, and changes by
    /// other processes since the last tick take effect. Spends that were queued before the call are durable when it returns.
    /// While the disk does not respond, it is pending, but changes of keys have taken effect; drop it after a while, and call it
    /// again.
    ///
    /// Errors: [`StoreError::NotCommitted`] if a spend could not be written, [`StoreError::Stopped`] if the writer has
    /// ended, or an error of the database. If [`SqliteError::is_fatal`], close all connections without an answer and end the
    /// process: some lookups may or may not be billed, and only the next start determines it.
    pub async fn tick(&self, now: impl Into<Clocks>) -> Result<(), SqliteError> {
        self.shared.serve.check()?;
        let now = now.into();
        self.shared.set_time(now);
        self.withdraw_overdue(now.elapsed);
        let keys_cleared = self.shared.clear_changed_keys();
        let (done, reply) = oneshot::channel();
        let sent = self.queue.send(Job::Tick { now, done });
        self.queue.notify();
        let ticked = match sent {
            Ok(_) => reply.await.unwrap_or_else(|_| Err(self.stopped())),
            Err(_) => Err(self.stopped()),
        };
        ticked.and(keys_cleared)
    }

    /// How long a spend waits for the transaction before its own. Afterwards, its lookup is answered with 500.
    pub const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

    fn withdraw_overdue(&self, now: Duration) {
        let Some(time) = now.checked_sub(Self::QUEUE_TIMEOUT) else { return };
        let is_overdue = |job: &mut Job| matches!(job, Job::Spend(spend) if spend.is_overdue(time));
        let mut wakes = WakeBatch::default();
        for job in self.queue.remove(is_overdue) {
            if let Job::Spend(spend) = job
                && let Some(spend) = spend.begin()
            {
                let mut account = self.shared.account(&spend.state);
                spend.fail(&mut account, StoreError::Withdrawn, &mut wakes);
            }
        }
        wakes.wake();
    }

    fn stopped(&self) -> SqliteError {
        self.shared.failure().err().unwrap_or_else(|| StoreError::Stopped.into())
    }

    /// Writes all queued spends and the rest of the state, and moves all commits into `accounts.db`, which is then complete
    /// without its write-ahead log. Later calls of the ledger fail. Call it when no lookup is in flight.
    ///
    /// To give the disk time to recover, call [`Ledger::tick`] until it succeeds, and then this.
    pub async fn close(&self) -> Result<(), SqliteError> {
        let end = self.end.lock().take();
        self.queue.close();
        match end {
            Some(end) => end.await.unwrap_or_else(|_| Err(self.stopped())),
            None => Err(self.stopped()),
        }
    }

    /// Returns the current credits of a workspace, including spends that are not durable yet.
    pub fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, SqliteError> {
        Ok(self.shared.workspace(workspace)?.balance())
    }

    /// Times commits with `clock`, which returns the time of a monotonic clock. The ledger itself reads none. The first call counts.
    pub fn time_commits(&self, clock: fn() -> Duration) {
        self.shared.stopwatch.get_or_init(|| clock);
    }

    /// Returns statistics for metrics. The held credits are those of the last tick.
    pub fn statistics(&self) -> LedgerStatistics {
        LedgerStatistics {
            credits_held: self.shared.credits_held.load(Ordering::Relaxed),
            queue_depth: self.queue.len() as u64,
            commits: self.shared.commits.snapshot(),
        }
    }

    /// Fails if spends cannot be written: the last commit failed and is not repaired, or a sync has failed.
    pub fn check(&self) -> Result<(), SqliteError> {
        self.shared.check_writable()
    }

    /// Returns the counter of free lookups. Pass each [`LookupEvent`](enrich_lib::observe::LookupEvent) to
    /// [`UsageCounter::record`]. Each tick, and the orderly end of the writer, add the counts to the usage.
    pub fn usage(&self) -> &Arc<UsageCounter> {
        &self.shared.usage
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
        let held = self.shared.account(&state).hold(hold);
        held.map_err(|error| SqliteError::from(error).into())
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        match self.begin(hold, settlement)? {
            Some(pending) => Ok(pending.await?),
            None => Ok(()),
        }
    }
}

impl Ledger {
    /// Settles a hold. Returns `None` if there is nothing to wait for.
    fn begin(&self, hold: &Hold, settlement: Settlement) -> Result<Option<PendingSpend<'_>>, SqliteError> {
        let state = self.shared.workspace(&hold.workspace)?;
        let begun = match settlement {
            Settlement::Release | Settlement::Spend(0) => {
                self.shared.account(&state).release(hold).map(|()| None).map_err(StoreError::from)
            }
            Settlement::Spend(credits) => self.spend(&state, hold, credits).map(Some),
        };
        match begun {
            Err(StoreError::Account(AccountError::NoHold)) => {
                settlement.without_hold(self.shared.spent(state.rowid, hold.lookup_id)?)?;
                Ok(None)
            }
            begun => Ok(begun?),
        }
    }

    /// Queues a spend.
    fn spend(
        &self,
        state: &Arc<WorkspaceState>,
        hold: &Hold,
        credits: u64,
    ) -> Result<PendingSpend<'_>, StoreError> {
        let mut account = self.shared.account(state);
        account.begin_spend(hold, credits)?;
        let queued_at = self.shared.elapsed();
        let lookup = BilledLookup {
            lookup_id: hold.lookup_id,
            workspace: state.rowid,
            key: hold.key,
            at: hold.placed_at,
            credits,
        };
        let spend = Arc::new(Spend::new(state.clone(), lookup, queued_at));
        let is_first = match self.queue.send(Job::Spend(QueuedSpend::new(spend.clone()))) {
            Ok(is_first) => is_first,
            Err(job) => {
                // Dropping the job locks the account.
                drop(account);
                drop(job);
                return Err(StoreError::Stopped);
            }
        };
        let notify_after = is_first.then_some(YIELDS);
        Ok(PendingSpend { ledger: self, spend, notify_after })
    }
}

/// Waits for the result of a spend. Dropping it does not withdraw the spend.
struct PendingSpend<'a> {
    ledger: &'a Ledger,
    spend: Arc<Spend>,
    /// Number of polls before it notifies the writer. `None` if another task does.
    notify_after: Option<u8>,
}

/// How often the first spend of a batch yields before it notifies the writer, so that one commit covers many spends.
///
/// Tasks that are ready queue their spends during the first yield. Tasks that just received their reply queue theirs during
/// the second. If no other task is ready, both yields return at once.
const YIELDS: u8 = 2;

impl Future for PendingSpend<'_> {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = self.spend.poll(cx);
        if result.is_pending()
            && let Some(yields) = self.notify_after
        {
            self.notify_after = yields.checked_sub(1);
            if yields > 0 {
                cx.waker().wake_by_ref();
            } else {
                self.ledger.queue.notify();
            }
        }
        result
    }
}

impl Drop for PendingSpend<'_> {
    fn drop(&mut self) {
        if self.notify_after.is_some() {
            self.ledger.queue.notify();
        }
        self.spend.stop_waiting();
    }
}

#[async_trait]
impl enrich_store::Ledger for Ledger {
    fn database(&self) -> &'static str {
        "sqlite"
    }

    async fn tick(&self, now: Clocks) -> Result<(), TickError> {
        self.tick(now).await.map_err(|error| match error.is_fatal() {
            true => TickError::Fatal(error.into()),
            false => TickError::Transient(error.into()),
        })
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(self.close().await?)
    }

    fn check(&self) -> Result<(), StoreError> {
        Ok(self.check()?)
    }

    fn statistics(&self) -> LedgerStatistics {
        self.statistics()
    }

    fn usage(&self) -> &Arc<UsageCounter> {
        self.usage()
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        Ok(self.balance(workspace)?)
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}
