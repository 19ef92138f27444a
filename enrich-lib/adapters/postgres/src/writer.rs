//! Group commit. One statement is in progress at a time; spends that arrive meanwhile form the next one. There is no
//! batching delay: a single spend is sent at once.
//!
//! A statement without a reply may have been executed, or may still be executed later. Its spends are retried under the same
//! ids while their callers wait. A spend whose caller has stopped waiting, or that was rejected on a retry, is voided. A
//! void cancels the spend even if it arrives first. A committed spend therefore stays in effect only if its caller received
//! the acknowledgement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::Hold;
use enrich_lib::model::LookupId;
use enrich_store::{Backoff, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::column::{Uuid, at, bigint, key_number};
use crate::error::PostgresError;
use crate::pool::{Pool, Value};
use crate::workspace::WorkspaceState;

/// The maximum number of spends in one statement. Bounds the latency of a batch.
const BATCH_MAX: usize = 512;

/// The backoff before a retry.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));

pub(crate) enum Job {
    Spend(Spend),
    Void(UnacknowledgedSpend),
    /// Replied to when no work is left.
    Flush(oneshot::Sender<()>),
}

/// A spend started by [`enrich_lib::credit::Account::begin_spend`].
pub(crate) struct Spend {
    pub(crate) state: Arc<WorkspaceState>,
    /// The row id of the workspace.
    pub(crate) rowid: i64,
    pub(crate) hold: Hold,
    pub(crate) credits: u64,
    pub(crate) reply: ReplySender,
    /// True if the spend was sent and may have been committed.
    pub(crate) is_ambiguous: bool,
    /// True if the lease could not pay for its spends of a batch. `charge` then settles the spend individually.
    pub(crate) is_late: bool,
}

/// An unacknowledged spend that may have been committed.
pub(crate) struct UnacknowledgedSpend {
    pub(crate) state: Arc<WorkspaceState>,
    pub(crate) rowid: i64,
    pub(crate) hold: Hold,
    /// True if the void was sent, or if a caller received an error for this spend. The spend can no longer succeed.
    pub(crate) is_final: bool,
}

/// The channel for the result. The receiver may be closed.
type ReplySender = oneshot::Sender<Result<(), PostgresError>>;

pub(crate) struct Writer {
    pool: Pool,
    spends: Vec<Spend>,
    unacknowledged: BTreeMap<LookupId, UnacknowledgedSpend>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl Writer {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool, spends: Vec::new(), unacknowledged: BTreeMap::new(), flushes: Vec::new() }
    }

    pub(crate) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let mut backoff = BACKOFF;
        loop {
            if self.spends.is_empty() && self.unacknowledged.is_empty() {
                for flush in self.flushes.drain(..) {
                    let _ = flush.send(());
                }
                let Some(job) = jobs.recv().await else { return };
                self.enqueue(job);
            }
            while let Ok(job) = jobs.try_recv() {
                self.enqueue(job);
            }
            self.remove_abandoned();
            // Spends go first because their callers wait.
            let settled = self.settle().await;
            let voided = self.void().await;
            match (settled, voided) {
                (Ok(()), Ok(())) => backoff.reset(),
                (Err(_), _) => sleep(backoff.next_pause()).await,
                // New spends do not wait for the void's backoff.
                (Ok(()), Err(_)) => {
                    if let Ok(Some(job)) = timeout(backoff.next_pause(), jobs.recv()).await {
                        self.enqueue(job);
                    }
                }
            }
        }
    }

    fn enqueue(&mut self, job: Job) {
        match job {
            Job::Spend(mut spend) => match self.unacknowledged.get(&spend.hold.lookup_id) {
                Some(earlier) if earlier.is_final => reject_voided(spend),
                Some(_) => {
                    // The void was not sent yet, so this attempt can still succeed.
                    self.unacknowledged.remove(&spend.hold.lookup_id);
                    spend.is_ambiguous = true;
                    self.spends.push(spend);
                }
                None => self.spends.push(spend),
            },
            Job::Void(spend) => {
                self.unacknowledged.insert(spend.hold.lookup_id, spend);
            }
            Job::Flush(done) => self.flushes.push(done),
        }
    }

    /// Removes spends whose callers have stopped waiting. Those that may have been committed are queued for a void.
    fn remove_abandoned(&mut self) {
        let (waiting, abandoned): (Vec<_>, Vec<_>) =
            self.spends.drain(..).partition(|spend| !spend.reply.is_closed());
        self.spends = waiting;
        for spend in abandoned {
            let id = spend.hold.lookup_id;
            let next = self.spends.iter_mut().find(|next| next.hold.lookup_id == id);
            match next {
                Some(next) => next.is_ambiguous |= spend.is_ambiguous,
                None if spend.is_ambiguous => {
                    self.unacknowledged.insert(id, spend.unacknowledged(false));
                    continue;
                }
                None => {}
            }
            spend.state.lease().account.abort_spend(&spend.hold);
        }
    }

    /// Sends one batch of waiting spends. Late spends form separate batches. Spends without a reply remain queued.
    async fn settle(&mut self) -> Result<(), PostgresError> {
        let is_late = self.spends.first().is_some_and(|spend| spend.is_late);
        let (mut batch, others): (Vec<_>, Vec<_>) =
            self.spends.drain(..).partition(|spend| spend.is_late == is_late);
        self.spends = batch.split_off(batch.len().min(BATCH_MAX));
        self.spends.extend(others);
        match self.send(batch).await {
            Err((batch, error)) if batch.len() > 1 && error.is_constraint() => {
                // One spend of the batch is invalid: send each separately, so that the others succeed.
                let mut failed = None;
                for spend in batch {
                    if let Err((batch, error)) = self.send(vec![spend]).await {
                        failed = self.fail(batch, error).err().or(failed);
                    }
                }
                failed.map_or(Ok(()), Err)
            }
            Err((batch, error)) => self.fail(batch, error),
            Ok(()) => Ok(()),
        }
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
        match sent {
            Ok(row) => {
                self.reply(batch, row.get(0));
                Ok(())
            }
            Err(error) => Err((batch, error)),
        }
    }

    /// Reports decided spends to their callers, and requeues undecided ones as late. The account stays locked while the
    /// result is sent, so that a caller that receives it finds the hold spent.
    fn reply(&mut self, batch: Vec<Spend>, committed: Vec<Option<bool>>) {
        let (mut acknowledged, mut unacknowledged) = (Vec::with_capacity(batch.len()), Vec::new());
        for (spend, is_committed) in batch.into_iter().zip(committed) {
            match is_committed {
                Some(true) => {}
                Some(false) => {
                    self.reject(spend, PostgresError::LeaseEnded);
                    continue;
                }
                None => {
                    self.spends.push(Spend { is_late: true, ..spend });
                    continue;
                }
            }
            let Spend { state, rowid, hold, reply, .. } = spend;
            let mut lease = state.lease();
            if reply.send(Ok(())).is_ok() {
                lease.account.commit_spend(&hold);
                acknowledged.push(hold.lookup_id);
            } else {
                drop(lease);
                unacknowledged.push(UnacknowledgedSpend { state, rowid, hold, is_final: false });
            }
        }
        unacknowledged.retain(|spend| !acknowledged.contains(&spend.hold.lookup_id));
        for spend in unacknowledged {
            self.unacknowledged.insert(spend.hold.lookup_id, spend);
        }
    }

    /// Rejects a spend. If an earlier attempt may still be executed, it is voided as well.
    fn reject(&mut self, spend: Spend, error: PostgresError) {
        if spend.is_ambiguous {
            self.unacknowledged.insert(spend.hold.lookup_id, spend.unacknowledged(true));
        } else {
            spend.state.lease().account.abort_spend(&spend.hold);
        }
        let _ = spend.reply.send(Err(error));
    }

    /// Handles a failed statement. Constraint violations are reported to the callers. Any other spend is retried, and
    /// becomes ambiguous unless connecting failed.
    fn fail(&mut self, batch: Vec<Spend>, error: PostgresError) -> Result<(), PostgresError> {
        if error.is_constraint() {
            for spend in batch {
                self.reject(spend, StoreError::NotCommitted(error.to_string()).into());
            }
            return Ok(());
        }
        let is_ambiguous = !matches!(error, PostgresError::Unreachable(_));
        let again = batch
            .into_iter()
            .map(|spend| Spend { is_ambiguous: spend.is_ambiguous || is_ambiguous, ..spend });
        self.spends.splice(..0, again);
        Err(error)
    }

    /// Voids unacknowledged spends. Their credits stay held until the store has replied.
    async fn void(&mut self) -> Result<(), PostgresError> {
        if self.unacknowledged.is_empty() {
            return Ok(());
        }
        let mut batch = Vec::new();
        for (id, spend) in self.unacknowledged.iter_mut().take(BATCH_MAX) {
            spend.is_final = true;
            batch.push((spend.state.epoch, spend.rowid, *id, at(spend.hold.placed_at)));
        }
        let epochs: Vec<_> = batch.iter().map(|(epoch, ..)| *epoch).collect();
        let workspaces: Vec<_> = batch.iter().map(|(_, rowid, ..)| *rowid).collect();
        let lookups: Vec<_> = batch.iter().map(|(_, _, id, _)| Uuid(*id)).collect();
        let arrivals: Vec<_> = batch.iter().map(|(.., at)| *at).collect();
        self.pool.query("SELECT void($1, $2, $3, $4)", &[&epochs, &workspaces, &lookups, &arrivals]).await?;
        for (_, _, id, _) in batch {
            if let Some(UnacknowledgedSpend { state, hold, .. }) = self.unacknowledged.remove(&id) {
                state.lease().account.void_spend(&hold);
            }
        }
        Ok(())
    }
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
        let lease = |spend: &Spend| (spend.rowid, spend.state.epoch);
        let mut leases = BTreeMap::<_, (i32, i64)>::new();
        for spend in batch {
            leases.entry(lease(spend)).or_default().1 += bigint(spend.credits);
        }
        for (number, (index, _)) in (1..).zip(leases.values_mut()) {
            *index = number;
        }
        Self {
            epochs: leases.keys().map(|(_, epoch)| *epoch).collect(),
            workspaces: leases.keys().map(|(workspace, _)| *workspace).collect(),
            sums: leases.values().map(|(_, sum)| *sum).collect(),
            numbers: batch.iter().map(|spend| leases[&lease(spend)].0).collect(),
        }
    }
}

impl Spend {
    fn unacknowledged(&self, is_final: bool) -> UnacknowledgedSpend {
        UnacknowledgedSpend {
            state: self.state.clone(),
            rowid: self.rowid,
            hold: self.hold.clone(),
            is_final,
        }
    }
}

/// Rejects a spend that has already been voided.
fn reject_voided(spend: Spend) {
    spend.state.lease().account.abort_spend(&spend.hold);
    let _ = spend.reply.send(Err(StoreError::NotCommitted("it was voided before".to_owned()).into()));
}
