//! Spends: one statement deletes the holds of a batch, and inserts the spends of those that existed.
//!
//! Spends are committed synchronously, and releases asynchronously. Neither touches the balance of a
//! workspace, so that no lock that others wait for is held while a commit is written to the disk. A
//! [`Sweep`](super::sweep::Sweep) returns the rest later.
//!
//! ```text
//! queued ──► sent ──► committed                  Ok
//!    │         └────► in doubt ──► committed     Ok
//!    │                    └──────► released      Err: no statement can commit it any more
//!    └──► withdrawn                              Err: it was queued for too long and never sent
//! ```
//!
//! A spend is *in doubt* if its statement has no reply, or found no hold. Reading which spends exist would
//! not decide it. Its statement may be executed later. Or it may have been committed on the primary alone: a
//! commit that waits for a standby becomes visible when its session is terminated or the primary restarts, and
//! is lost if the standby is promoted.
//!
//! A *fence* decides it. One transaction ends the holds of the spends in doubt, then reads which of them exist,
//! and writes to the log in any case. It is committed as a spend is. When its commit is acknowledged:
//!
//! - A spend that it has not read will never exist. The fence has waited for a statement that was being
//!   executed, because both lock the hold, and a statement that arrives later finds no hold. Whichever
//!   transaction ended the hold before is as durable as the fence.
//! - A spend that it has read is as durable as if it had been acknowledged. Only committed transactions are
//!   read, so the record of its commit precedes that of the fence. The disk or the standby that acknowledged
//!   the fence has the log up to there.
//!
//! A fence that wrote nothing would wait for no standby, and nothing would follow from it.
//!
//! A spend whose receipt another lookup has paid for ends its hold and is not inserted. Both conclusions hold for
//! the receipt, too: it is inserted with its spend, and read by the transaction that ended the hold or by the fence.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use enrich_lib::credit::{AccountError, Settlement};
use enrich_store::batch::{BatchReceiver, Job, Replies};
use enrich_store::statistics::CommitCounter;
use enrich_store::{Backoff, StoreError};
use tokio::time::{Instant, sleep, timeout};

use super::release::Releases;
use super::settle::{Settle, SettleResult, fence, spend};
use crate::connect::pool::Pool;
use crate::error::PostgresError;
use crate::health::Health;

/// The backoff before a retry.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(2));

/// How long a spend waits to be sent. It is withdrawn after the statement and the pause in progress.
pub(crate) const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

type SettleJob = Job<Settle, SettleResult>;

/// The task that commits spends.
pub(crate) struct Spender {
    pool: Pool,
    /// Ends the holds of spends that have failed.
    releases: Releases,
    commits: Arc<CommitCounter>,
    health: Arc<Health>,
    /// Spends without a result that were taken from the queue.
    taken: Arc<AtomicUsize>,
    /// Spends that no statement has executed.
    waiting: Vec<SettleJob>,
    in_doubt: Vec<SettleJob>,
}

impl Spender {
    pub(crate) fn new(
        pool: Pool,
        releases: Releases,
        commits: Arc<CommitCounter>,
        taken: Arc<AtomicUsize>,
        health: Arc<Health>,
    ) -> Self {
        Self { pool, releases, commits, health, taken, waiting: Vec::new(), in_doubt: Vec::new() }
    }

    /// Runs until the queue is closed and every spend has a result.
    pub(crate) async fn run(mut self, mut queue: BatchReceiver<Settle, SettleResult>) {
        let mut backoff = BACKOFF;
        loop {
            if self.waiting.is_empty() && self.in_doubt.is_empty() {
                match timeout(Health::INTERVAL, queue.take(&mut self.waiting, self.pool.sizes.batch)).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(_) => {
                        self.health.record(&spend(&self.pool, std::iter::empty()).await);
                        continue;
                    }
                }
            }
            // All, so that those of later batches are withdrawn in time.
            queue.yield_and_take_queued(&mut self.waiting, usize::MAX);
            self.withdraw_overdue();
            self.count();
            if self.waiting.is_empty() && self.in_doubt.is_empty() {
                continue;
            }
            let step = self.step().await;
            self.health.record(&step);
            self.count();
            match step {
                Ok(()) => backoff.reset(),
                Err(_) => sleep(backoff.next_pause()).await,
            }
        }
    }

    fn count(&self) {
        self.taken.store(self.waiting.len() + self.in_doubt.len(), Ordering::Relaxed);
    }

    /// Withdraws spends that have waited for too long. Their lookups are answered with 500.
    fn withdraw_overdue(&mut self) {
        let is_overdue = |job: &mut SettleJob| job.item.queued_at.elapsed() >= QUEUE_TIMEOUT;
        for job in self.waiting.extract_if(.., is_overdue) {
            self.releases.release(job.item.hold.clone());
            job.reply(Err(StoreError::Withdrawn.into()));
        }
    }

    async fn step(&mut self) -> Result<(), PostgresError> {
        self.decide().await?;
        let count = self.waiting.len().min(self.pool.sizes.batch);
        let batch = self.waiting.drain(..count).collect();
        self.commit(batch).await?;
        self.decide().await
    }

    /// Commits a batch. If one of its spends is invalid, commits them one by one, so that the others succeed.
    async fn commit(&mut self, batch: Vec<SettleJob>) -> Result<(), PostgresError> {
        let Err((batch, error)) = self.try_commit(batch).await else { return Ok(()) };
        if batch.len() == 1 || !error.is_constraint() {
            return self.keep(batch, error);
        }
        let mut batch = batch.into_iter();
        while let Some(job) = batch.next() {
            if let Err((job, error)) = self.try_commit(vec![job]).await
                && let Err(error) = self.keep(job, error)
            {
                self.waiting.extend(batch);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Executes the statement of a batch, and replies to the spends that it commits.
    async fn try_commit(&mut self, batch: Vec<SettleJob>) -> Result<(), (Vec<SettleJob>, PostgresError)> {
        if batch.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let settled = spend(&self.pool, batch.iter().map(|job| &job.item)).await;
        self.commits.record_duration(begun.elapsed());
        match settled {
            Ok(Some(payers)) => {
                self.commits.record(batch.len() - payers.len());
                let mut replies = Replies::default();
                for job in batch {
                    let lookup_id = job.item.hold.lookup_id;
                    match payers.get(&lookup_id) {
                        None => replies.add(job, Ok(None)),
                        Some(Some(payer)) if *payer != lookup_id => replies.add(job, Ok(Some(*payer))),
                        Some(_) => self.in_doubt.push(job),
                    }
                }
            }
            Ok(None) => self.in_doubt.extend(batch),
            Err(error) => {
                if !error.is_constraint() {
                    self.commits.record_failure();
                }
                return Err((batch, error));
            }
        }
        Ok(())
    }

    /// Handles a failed statement: fails an invalid spend, and keeps the others.
    fn keep(&mut self, batch: Vec<SettleJob>, error: PostgresError) -> Result<(), PostgresError> {
        if error.is_constraint() {
            for job in batch {
                self.releases.release(job.item.hold.clone());
                job.reply(Err(StoreError::NotCommitted(error.to_string()).into()));
            }
            return Ok(());
        }
        let jobs = if error.had_no_effect() { &mut self.waiting } else { &mut self.in_doubt };
        jobs.extend(batch);
        Err(error)
    }

    /// Determines the outcome of the spends in doubt.
    async fn decide(&mut self) -> Result<(), PostgresError> {
        while !self.in_doubt.is_empty() {
            let count = self.in_doubt.len().min(self.pool.sizes.batch);
            let batch = self.in_doubt[..count].iter().map(|job| &job.item);
            let stored = fence(&self.pool, batch).await?;
            let mut replies = Replies::default();
            for job in self.in_doubt.drain(..count) {
                let Settle { hold, credits, .. } = &job.item;
                // The fence has ended every hold but those that are too small.
                let result = match (stored.spent(hold), stored.payer(hold)) {
                    _ if stored.held(hold).is_some_and(|held| held < *credits) => Err(AccountError::OverHold),
                    (None, Some(payer)) => Ok(Some(payer)),
                    (spent, _) => Settlement::Spend(*credits).without_hold(spent).map(|()| None),
                };
                let result = result.map_err(PostgresError::from);
                replies.add(job, result);
            }
        }
        Ok(())
    }
}
