//! Settlements: one statement deletes the holds of a batch, and inserts the spends of those that existed.
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
//! not be enough: while the statement is being executed, its spends are invisible, and a moment later they
//! exist. The ids are therefore released first. The release waits for a statement that is being executed, and
//! one that arrives later finds no hold. Afterwards, the spends that exist are committed, and the others
//! never will be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use enrich_lib::credit::{AccountError, Hold, Settlement};
use enrich_lib::model::LookupId;
use enrich_store::batch::{BatchReceiver, BatchSender, Job, Replies};
use enrich_store::statistics::CommitCounter;
use enrich_store::{Backoff, StoreError};
use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;

use super::batch::{Names, lookup_ids};
use crate::column::{bigint, credits, key_number, lookup_id};
use crate::connect::pool::Pool;
use crate::error::PostgresError;

/// The maximum number of settlements in one statement. Bounds the latency of a batch.
const BATCH_MAX: usize = 512;

/// The backoff before a retry.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(2));

/// How long a spend waits to be sent. Afterwards, its lookup is answered with 500.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends holds, and returns their number.
const SETTLE: &str = "/* enrich: settle */ SELECT settle_holds($1, $2, $3, $4, $5, $6, $7, $8)";

/// Returns the lookups that are spent, those that are still held, and a first row without a lookup.
const READ: &str = "/* enrich: read spends */
    SELECT current_setting('transaction_read_only') = 'on', NULL::bytea, '', 0::bigint, false
    UNION ALL
    SELECT false, h.lookup_id, w.id, h.credits, false
    FROM credit_hold h JOIN workspace w ON w.rowid = h.workspace WHERE h.lookup_id = ANY ($1)
    UNION ALL
    SELECT false, s.lookup_id, w.id, s.credits, true
    FROM credit_spend s JOIN workspace w ON w.rowid = s.workspace WHERE s.lookup_id = ANY ($1)";

/// A hold to end.
pub(crate) struct Settle {
    pub(crate) hold: Hold,
    /// What it costs. Ignored by a release.
    pub(crate) credits: u64,
    pub(crate) queued_at: Instant,
}

/// The result of a settlement.
pub(crate) type SettleResult = Result<(), PostgresError>;

type SettleJob = Job<Settle, SettleResult>;

/// Whether a settlement spends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Spend,
    /// Commits asynchronously: a release that a crash loses is made up for when the hold expires.
    Release,
    /// Commits synchronously, before the spends are read.
    Fence,
}

/// Ends the holds of a batch. Returns whether all of them existed.
async fn settle(pool: &Pool, batch: &[SettleJob], mode: Mode) -> Result<bool, PostgresError> {
    let holds = || batch.iter().map(|job| &job.item.hold);
    let (Names { names, numbers }, lookups) = (Names::of(holds()), lookup_ids(holds()));
    let costs: Vec<_> = batch.iter().map(|job| bigint(job.item.credits)).collect();
    let keys: Vec<_> = holds().map(|hold| key_number(hold.key)).collect();
    let times: Vec<_> = holds().map(|hold| bigint(hold.placed_at.unix_ms())).collect();
    let (is_release, is_synchronous) = (mode != Mode::Spend, mode != Mode::Release);
    let rows = pool
        .query(
            SETTLE,
            &[
                (&names, Type::TEXT_ARRAY),
                (&lookups, Type::BYTEA_ARRAY),
                (&numbers, Type::INT8_ARRAY),
                (&costs, Type::INT8_ARRAY),
                (&keys, Type::INT8_ARRAY),
                (&times, Type::INT8_ARRAY),
                (&is_release, Type::BOOL),
                (&is_synchronous, Type::BOOL),
            ],
        )
        .await?;
    Ok(rows.first().is_some_and(|row| row.get::<_, i64>(0) == batch.len() as i64))
}

/// What is stored of lookups, by lookup and workspace.
#[derive(Default)]
struct Stored {
    spent: BTreeMap<(LookupId, String), u64>,
    held: BTreeMap<(LookupId, String), u64>,
}

impl Stored {
    async fn read(pool: &Pool, batch: &[SettleJob]) -> Result<Self, PostgresError> {
        let lookups = lookup_ids(batch.iter().map(|job| &job.item.hold));
        let rows = pool.read(READ, &[(&lookups, Type::BYTEA_ARRAY)]).await?;
        let mut stored = Self::default();
        for row in &rows {
            let Some(lookup) = row.get::<_, Option<&[u8]>>(1) else { continue };
            let lookup = lookup_id("credit_spend.lookup_id", lookup)?;
            let key = (lookup, row.get(2));
            let credits_of = if row.get(4) { &mut stored.spent } else { &mut stored.held };
            credits_of.insert(key, credits(row.get(3)));
        }
        Ok(stored)
    }

    /// Returns the credits that a lookup has spent.
    fn spent(&self, hold: &Hold) -> Option<u64> {
        self.spent.get(&key(hold)).copied()
    }

    /// Returns the credits that a lookup holds.
    fn held(&self, hold: &Hold) -> Option<u64> {
        self.held.get(&key(hold)).copied()
    }
}

fn key(hold: &Hold) -> (LookupId, String) {
    (hold.lookup_id, hold.workspace.to_string())
}

/// The sending side of the task that releases holds.
#[derive(Clone)]
pub(crate) struct Releases(Arc<BatchSender<Settle, SettleResult>>);

impl Releases {
    pub(crate) fn new(queue: BatchSender<Settle, SettleResult>) -> Self {
        Self(Arc::new(queue))
    }

    /// Queues the release of a hold, and returns without waiting for it.
    pub(crate) fn release(&self, hold: Hold) {
        drop(self.0.send(Settle { hold, credits: 0, queued_at: Instant::now() }));
    }

    /// Releases a hold.
    pub(crate) async fn released(&self, hold: Hold) -> SettleResult {
        let settle = Settle { hold, credits: 0, queued_at: Instant::now() };
        self.0.send(settle).await.unwrap_or(Err(StoreError::Stopped.into()))
    }

    /// Closes the queue: the task ends when it has released the queued holds.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}

/// The task that commits spends.
pub(crate) struct Spender {
    pool: Pool,
    /// Ends the holds of spends that have failed.
    releases: Releases,
    commits: Arc<CommitCounter>,
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
    ) -> Self {
        Self { pool, releases, commits, taken, waiting: Vec::new(), in_doubt: Vec::new() }
    }

    /// Runs until the queue is closed and every spend has a result.
    pub(crate) async fn run(mut self, mut queue: BatchReceiver<Settle, SettleResult>) {
        let mut backoff = BACKOFF;
        loop {
            let is_idle = self.waiting.is_empty() && self.in_doubt.is_empty();
            if is_idle && !queue.take(&mut self.waiting, BATCH_MAX).await {
                return;
            }
            queue.yield_and_take_queued(&mut self.waiting, BATCH_MAX);
            self.withdraw_overdue();
            self.count();
            let step = self.step().await;
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

    /// Withdraws spends that have waited for too long.
    fn withdraw_overdue(&mut self) {
        let is_overdue = |job: &mut SettleJob| job.item.queued_at.elapsed() >= QUEUE_TIMEOUT;
        for job in self.waiting.extract_if(.., is_overdue) {
            self.releases.release(job.item.hold.clone());
            job.reply(Err(StoreError::Withdrawn.into()));
        }
    }

    async fn step(&mut self) -> Result<(), PostgresError> {
        self.decide().await?;
        let batch = std::mem::take(&mut self.waiting);
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
        let settled = settle(&self.pool, &batch, Mode::Spend).await;
        self.commits.record_duration(begun.elapsed());
        match settled {
            Ok(true) => {
                self.commits.record(batch.len());
                let mut replies = Replies::default();
                batch.into_iter().for_each(|job| replies.add(job, Ok(())));
            }
            Ok(false) => self.in_doubt.extend(batch),
            Err(error) => {
                self.commits.record_failure();
                return Err((batch, error));
            }
        }
        Ok(())
    }

    /// Handles a failed statement: fails an invalid spend, and keeps the others.
    fn keep(&mut self, batch: Vec<SettleJob>, error: PostgresError) -> Result<(), PostgresError> {
        if error.is_duplicate() {
            // The lookup has spent before, and was held again.
            self.in_doubt.extend(batch);
            return Ok(());
        }
        if error.is_constraint() {
            for job in batch {
                self.releases.release(job.item.hold.clone());
                job.reply(Err(StoreError::NotCommitted(error.to_string()).into()));
            }
            return Ok(());
        }
        // A rejected statement had no effect.
        let had_no_effect = matches!(error, PostgresError::Unreachable(_)) || error.is_rejection();
        let jobs = if had_no_effect { &mut self.waiting } else { &mut self.in_doubt };
        jobs.extend(batch);
        Err(error)
    }

    /// Determines the outcome of the spends in doubt.
    async fn decide(&mut self) -> Result<(), PostgresError> {
        while !self.in_doubt.is_empty() {
            let count = self.in_doubt.len().min(BATCH_MAX);
            let batch = &self.in_doubt[..count];
            settle(&self.pool, batch, Mode::Fence).await?;
            let stored = Stored::read(&self.pool, batch).await?;
            let mut replies = Replies::default();
            for job in self.in_doubt.drain(..count) {
                let Settle { hold, credits, .. } = &job.item;
                // The release has ended every hold but those that are too small. It may have been placed
                // again since.
                let result = if stored.held(hold).is_some_and(|held| held < *credits) {
                    Err(AccountError::OverHold)
                } else {
                    Settlement::Spend(*credits).without_hold(stored.spent(hold))
                };
                let result = result.map_err(PostgresError::from);
                replies.add(job, result);
            }
        }
        Ok(())
    }
}

/// Runs the task that releases holds. If a release fails, its hold expires.
pub(crate) async fn run_releases(pool: Pool, mut queue: BatchReceiver<Settle, SettleResult>) {
    let mut jobs = Vec::new();
    while queue.take(&mut jobs, BATCH_MAX).await {
        queue.yield_and_take_queued(&mut jobs, BATCH_MAX);
        let batch = std::mem::take(&mut jobs);
        let mut replies = Replies::default();
        match release(&pool, &batch).await {
            Ok(stored) => batch.into_iter().for_each(|job| {
                let result = Settlement::Release.without_hold(stored.spent(&job.item.hold));
                replies.add(job, result.map_err(PostgresError::from));
            }),
            Err(error) => batch.into_iter().for_each(|job| {
                replies.add(job, Err(PostgresError::NotReleased(error.to_string())));
            }),
        }
    }
}

/// Releases holds. If some did not exist, returns what is stored of the lookups.
async fn release(pool: &Pool, batch: &[SettleJob]) -> Result<Stored, PostgresError> {
    if settle(pool, batch, Mode::Release).await? {
        return Ok(Stored::default());
    }
    Stored::read(pool, batch).await
}
