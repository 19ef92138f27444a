//! Group commit. One statement is in progress at a time; spends that arrive meanwhile form the next one. There is no
//! batching delay: a single spend is sent at once.
//!
//! ```text
//! queued ──► sent ──► committed      the reply says so
//!    │         └────► rejected       the reply says so, and no earlier statement can commit it any more
//!    └──► withdrawn                  it was queued for too long
//! ```
//!
//! A statement without a reply may have been executed, or may still be executed later. Its spends are *ambiguous*: they are
//! sent again under the same ids until a reply says that they are committed. Their callers have no result until then.
//!
//! A batch that waits too long for a lock fails without effect. Then the spends of each lease are sent separately. Those that
//! fail again wait in [`Blocked`], so that the spends of other leases are committed meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use enrich_net::Replies;
use enrich_store::statistics::CommitCounter;
use enrich_store::{Backoff, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use crate::blocked::Blocked;
use crate::column::{Uuid, at, bigint, key_number};
use crate::error::PostgresError;
use crate::pool::{Pool, Value};
use crate::spend::Spend;

/// The maximum number of spends in one statement. Bounds the latency of a batch.
const BATCH_MAX: usize = 512;

/// The backoff before a retry.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));

/// How long a spend waits to be sent. Afterwards, its lookup is answered with 500.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) enum Job {
    Spend(Spend),
    /// Replied to when no work is left.
    Flush(oneshot::Sender<()>),
}

pub(crate) struct Writer {
    pool: Pool,
    spends: Vec<Spend>,
    /// The spends of leases that others have locked.
    blocked: Blocked,
    flushes: Vec<oneshot::Sender<()>>,
    commits: Arc<CommitCounter>,
}

impl Writer {
    pub(crate) fn new(pool: Pool, commits: Arc<CommitCounter>) -> Self {
        Self { pool, spends: Vec::new(), blocked: Blocked::new(), flushes: Vec::new(), commits }
    }

    pub(crate) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let mut backoff = BACKOFF;
        loop {
            if self.spends.is_empty() {
                let job = match self.blocked.retry_at() {
                    Some(retry_at) => timeout_at(retry_at, jobs.recv()).await,
                    None => {
                        for flush in self.flushes.drain(..) {
                            let _ = flush.send(());
                        }
                        Ok(jobs.recv().await)
                    }
                };
                match job {
                    Ok(Some(job)) => self.enqueue(job),
                    Ok(None) => return,
                    Err(_) => {}
                }
            }
            // Threads that wait for a processor queue their spends first: PostgreSQL executes one large batch with less CPU
            // time than two small ones.
            thread::yield_now();
            while let Ok(job) = jobs.try_recv() {
                self.enqueue(job);
            }
            self.withdraw_overdue();
            match self.settle().await {
                Ok(()) => backoff.reset(),
                Err(_) => sleep(backoff.next_pause()).await,
            }
        }
    }

    fn enqueue(&mut self, job: Job) {
        match job {
            Job::Spend(spend) => self.spends.extend(self.blocked.add_if_blocked(spend)),
            Job::Flush(done) => self.flushes.push(done),
        }
    }

    /// Withdraws spends that were never executed and have waited for too long.
    fn withdraw_overdue(&mut self) {
        let is_overdue =
            |spend: &mut Spend| !spend.is_ambiguous && spend.queued_at.elapsed() >= QUEUE_TIMEOUT;
        for spend in self.spends.extract_if(.., is_overdue).chain(self.blocked.extract_if(is_overdue)) {
            spend.fail(StoreError::Withdrawn.into());
        }
    }

    /// Sends one batch of waiting spends, and those of one blocked lease if they are due. Late spends form separate batches.
    /// Spends without a result remain queued.
    async fn settle(&mut self) -> Result<(), PostgresError> {
        let is_late = self.spends.first().is_some_and(|spend| spend.is_late);
        let (mut batch, others): (Vec<_>, Vec<_>) =
            self.spends.drain(..).partition(|spend| spend.is_late == is_late);
        self.spends = batch.split_off(batch.len().min(BATCH_MAX));
        self.spends.extend(others);
        self.settle_batch(batch).await?;
        let due = self.blocked.take_due(BATCH_MAX);
        self.settle_batch(due).await
    }

    /// Sends a batch, and then its parts if it was rejected because of some of its spends.
    async fn settle_batch(&mut self, batch: Vec<Spend>) -> Result<(), PostgresError> {
        let Err((batch, error)) = self.send(batch).await else { return Ok(()) };
        let mut parts = parts(batch, &error);
        if let [_] = &parts[..] {
            return parts.pop().map_or(Ok(()), |batch| self.fail(batch, error));
        }
        let mut parts = parts.into_iter();
        while let Some(part) = parts.next() {
            if let Err((part, error)) = self.send(part).await
                && let Err(error) = self.fail(part, error)
            {
                self.spends.extend(parts.flatten());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Sends the batch as one atomic statement and reports each spend's result to its caller.
    async fn send(&mut self, mut batch: Vec<Spend>) -> Result<(), (Vec<Spend>, PostgresError)> {
        let Some(first) = batch.first() else { return Ok(()) };
        let is_late = first.is_late;
        batch.sort_by_key(|spend| spend.hold.lookup_id);
        let lookups: Vec<_> = batch.iter().map(|spend| Uuid(spend.hold.lookup_id)).collect();
        let costs: Vec<_> = batch.iter().map(|spend| bigint(spend.credits)).collect();
        let arrivals: Vec<_> = batch.iter().map(|spend| at(spend.hold.placed_at)).collect();
        let keys: Vec<_> = batch.iter().map(|spend| key_number(spend.hold.key)).collect();
        let begun = Instant::now();
        let sent = if is_late {
            let epochs: Vec<_> = batch.iter().map(|spend| spend.state.epoch).collect();
            let workspaces: Vec<_> = batch.iter().map(|spend| spend.rowid).collect();
            let call = "SELECT charge($1, $2, $3, $4, $5, $6)";
            self.pool.query_one(call, &[&epochs, &workspaces, &lookups, &keys, &costs, &arrivals]).await
        } else {
            let Leases { epochs, workspaces, sums, numbers } = Leases::of(&batch);
            let call = "SELECT settle($1, $2, $3, $4, $5, $6, $7, $8)";
            let values: [Value<'_>; 8] =
                [&epochs, &workspaces, &sums, &lookups, &numbers, &keys, &costs, &arrivals];
            self.pool.query_one(call, &values).await
        };
        self.commits.record_duration(begun.elapsed());
        match sent {
            Ok(row) => {
                self.commits.record(batch.len());
                self.reply(batch, row.get(0));
                Ok(())
            }
            Err(error) => {
                self.commits.record_failure();
                Err((batch, error))
            }
        }
    }

    /// Reports committed spends to their callers. `settle` requeues the others as late, and `charge` rejects them.
    fn reply(&mut self, batch: Vec<Spend>, committed: Vec<bool>) {
        let mut replies = Replies::default();
        for (spend, is_committed) in batch.into_iter().zip(committed) {
            match is_committed {
                true => {
                    let mut lease = spend.state.lease();
                    lease.account.commit_spend(spend.hold.lookup_id);
                    lease.spends.insert(spend.hold.lookup_id, spend.credits);
                    drop(lease);
                    replies.add(spend.reply, Ok(()));
                }
                // No earlier statement can commit it either.
                false if spend.is_late => spend.fail(PostgresError::LeaseEnded),
                false => self.spends.push(Spend { is_late: true, ..spend }),
            }
        }
        replies.send();
    }

    /// Handles a failed statement. Constraint violations are reported to the callers. The spends of a locked lease wait. Any
    /// other spend is sent again, and is ambiguous unless connecting failed.
    fn fail(&mut self, batch: Vec<Spend>, error: PostgresError) -> Result<(), PostgresError> {
        if error.is_constraint() {
            for spend in batch {
                // An earlier statement could still commit an ambiguous spend, which therefore has no result.
                if !spend.is_ambiguous {
                    spend.fail(StoreError::NotCommitted(error.to_string()).into());
                }
            }
            return Ok(());
        }
        if error.is_blocked() {
            self.blocked.add(batch);
            return Ok(());
        }
        let is_ambiguous = !matches!(error, PostgresError::Unreachable(_));
        let again = batch
            .into_iter()
            .map(|spend| Spend { is_ambiguous: spend.is_ambiguous || is_ambiguous, ..spend });
        self.spends.splice(..0, again);
        Err(error)
    }
}

/// Divides a batch that was rejected because of some of its spends, so that the others succeed.
fn parts(batch: Vec<Spend>, error: &PostgresError) -> Vec<Vec<Spend>> {
    if error.is_constraint() {
        return batch.into_iter().map(|spend| vec![spend]).collect();
    }
    if !error.is_blocked() {
        return vec![batch];
    }
    let mut leases = BTreeMap::<_, Vec<_>>::new();
    for spend in batch {
        leases.entry(spend.lease()).or_default().push(spend);
    }
    leases.into_values().collect()
}

/// The leases that pay for a batch.
struct Leases {
    epochs: Vec<i64>,
    workspaces: Vec<i64>,
    /// The total cost per lease.
    sums: Vec<i64>,
    /// The index of each spend's lease, from 1.
    numbers: Vec<i32>,
}

impl Leases {
    /// Groups spends by lease, in lock order (workspace, then epoch), which prevents deadlocks.
    fn of(batch: &[Spend]) -> Self {
        let mut leases = BTreeMap::<_, (i32, i64)>::new();
        for spend in batch {
            leases.entry(spend.lease()).or_default().1 += bigint(spend.credits);
        }
        for (number, (index, _)) in (1..).zip(leases.values_mut()) {
            *index = number;
        }
        Self {
            epochs: leases.keys().map(|(_, epoch)| *epoch).collect(),
            workspaces: leases.keys().map(|(workspace, _)| *workspace).collect(),
            sums: leases.values().map(|(_, sum)| *sum).collect(),
            numbers: batch.iter().map(|spend| leases[&spend.lease()].0).collect(),
        }
    }
}
