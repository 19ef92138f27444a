//! Group commit: one writer commits all spends that were queued during the previous commit as one batch.
//!
//! A strict ledger has no fixed waiting window. A single spend is committed at once. Otherwise the first spend of a
//! batch lets all ready tasks queue theirs before it notifies the writer ([`crate::queue`]).
//!
//! A spend counts only if it is acknowledged. The writer skips a spend whose caller stopped waiting. It voids a spend
//! that is durable but could not be acknowledged, because the lookup was answered with status 500. A spend that was
//! acknowledged before it is durable is *unflushed*; the writer retries it until it is committed.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use enrich_lib::credit::{Account, AccountError};
use enrich_lib::model::Timestamp;
use enrich_store::usage::{Day, UsageCount};
use enrich_store::{KeyUse, StoreError};
use rusqlite::{Connection, TransactionBehavior};
use rustc_hash::FxHashMap;

use crate::database::ChangeDetector;
use crate::durability::Durability;
use crate::error::SqliteError;
use crate::queue::Receiver;
use crate::rows::{self, ROWS};
use crate::shared::{Shared, WorkspaceState};
use crate::spend::{QueuedSpend, Spend, WakeBatch};
use crate::sync::oneshot;
use crate::totals::Totals;
use crate::usage::{self, Usage};

/// Maximum number of keys whose last use is written per tick. Each key updates a separate page.
const KEY_USES_MAX: usize = 100;

/// Maximum number of jobs in one commit. Bounds how long the first job waits for the last.
const BATCH_MAX: usize = 512;

pub(crate) enum Job {
    Spend(QueuedSpend),
    /// A durable spend whose reply was never sent.
    Void(Arc<Spend>),
    Tick {
        now: Timestamp,
        done: oneshot::Sender<Result<(), SqliteError>>,
    },
}

pub(crate) struct Writer {
    db: Connection,
    shared: Arc<Shared>,
    durability: Durability,
    detector: ChangeDetector,
    totals: Totals,
    usage: Usage,
    /// Rowid of the last grant that was applied.
    grants_seen: i64,
    /// Unflushed spends, and the error of the last attempt to write them.
    unflushed: Vec<QueuedSpend>,
    flush_error: Option<String>,
    /// Durable, unacknowledged spends to void as soon as the disk accepts it.
    unacknowledged: Vec<Arc<Spend>>,
    /// Accounts by the time when they next have a hold to expire or to forget.
    expiry_queue: BTreeMap<Timestamp, Vec<Arc<WorkspaceState>>>,
    /// The nonzero values of the `held` column, by rowid of the workspace.
    held_written: FxHashMap<i64, u64>,
}

impl Writer {
    pub(crate) fn new(
        mut db: Connection,
        shared: Arc<Shared>,
        durability: Durability,
    ) -> Result<Self, SqliteError> {
        // Keeps the statement journal of a multi-row `INSERT`, a few pages, in memory instead of a temporary file.
        db.pragma_update(None, "temp_store", "MEMORY")?;
        // Holds of an earlier process ended with it.
        db.execute("UPDATE workspace SET held = 0 WHERE held <> 0", [])?;
        let totals = Totals::open(&mut db)?;
        let usage = Usage::open(&mut db)?;
        let detector = ChangeDetector::new(&db)?;
        let grants_seen =
            db.query_row("SELECT coalesce(max(rowid), 0) FROM credit_grant", [], |row| row.get(0))?;
        Ok(Self {
            db,
            shared,
            durability,
            detector,
            totals,
            usage,
            grants_seen,
            unflushed: Vec::new(),
            flush_error: None,
            unacknowledged: Vec::new(),
            expiry_queue: BTreeMap::new(),
            held_written: FxHashMap::default(),
        })
    }

    pub(crate) async fn run(mut self, mut jobs: Receiver<Job>) {
        let mut batch = Vec::new();
        while jobs.take(&mut batch, BATCH_MAX).await {
            let mut spends = Vec::new();
            let mut ticks = Vec::new();
            for job in batch.drain(..) {
                match job {
                    Job::Spend(spend) if spend.is_acknowledged => self.unflushed.push(spend),
                    Job::Spend(spend) if spend.is_abandoned() => {
                        self.shared.account(&spend.state).abort_spend(&spend.hold);
                    }
                    Job::Spend(spend) => spends.push(spend),
                    Job::Void(spend) => self.unacknowledged.push(spend),
                    Job::Tick { now, done } => ticks.push((now, done)),
                }
            }
            self.commit(spends);
            // The next tick retries a failed void and reports the error.
            let _ = self.void();
            for (now, done) in ticks {
                let _ = done.send(self.tick(now));
            }
            if self.durability == Durability::Relaxed {
                yield_once().await;
            }
        }
        // If it fails, the next process counts the billed lookups again.
        let _ = self.write_statistics(&[]);
    }

    /// Writes unflushed and new spends as one batch.
    fn commit(&mut self, waiting: Vec<QueuedSpend>) {
        let mut spends = mem::take(&mut self.unflushed);
        if spends.is_empty() && waiting.is_empty() {
            return;
        }
        let unflushed_before = spends.len();
        spends.extend(waiting);
        self.flush_error = None;
        let mut wakes = WakeBatch::default();
        self.write(spends, &mut wakes);
        self.shared.unflushed.settle(unflushed_before - self.unflushed.len(), self.flush_error.is_some());
        wakes.wake();
    }

    fn write(&mut self, spends: Vec<QueuedSpend>, wakes: &mut WakeBatch) {
        match self.write_spends(&spends) {
            Ok(committed) => {
                spends
                    .into_iter()
                    .zip(committed)
                    .for_each(|(spend, is_committed)| self.reply(spend, is_committed, wakes));
            }
            // A constraint rejected one workspace's spend. Write each spend alone, so that the others succeed.
            Err(error) if spends.len() > 1 && error.is_constraint() => {
                spends.into_iter().for_each(|spend| self.write(vec![spend], wakes));
            }
            Err(error) => {
                let message = error.to_string();
                for spend in spends {
                    if spend.is_acknowledged {
                        self.unflushed.push(spend);
                        self.flush_error.get_or_insert_with(|| message.clone());
                    } else {
                        self.shared.account(&spend.state).abort_spend(&spend.hold);
                        spend.complete(Err(StoreError::NotCommitted(message.clone())), wakes);
                    }
                }
            }
        }
    }

    /// Sends the reply to a committed spend, or an error if it was voided before. The account stays locked meanwhile,
    /// so that a caller that receives the reply finds the credits spent.
    fn reply(&mut self, spend: QueuedSpend, is_committed: bool, wakes: &mut WakeBatch) {
        if spend.is_acknowledged {
            return;
        }
        let mut account = self.shared.account(&spend.state);
        if !is_committed {
            account.abort_spend(&spend.hold);
            spend.complete(Err(AccountError::Ended.into()), wakes);
        } else if spend.complete(Ok(()), wakes) {
            account.commit_spend(&spend.hold);
            // The spend is acknowledged now, so the void of an earlier, abandoned attempt is cancelled.
            self.unacknowledged
                .retain(|unacknowledged| unacknowledged.hold.lookup_id != spend.hold.lookup_id);
        } else {
            self.unacknowledged.push(spend.0.clone());
        }
    }

    /// Voids the unacknowledged spends. Until the void is durable, their credits are held.
    fn void(&mut self) -> Result<(), SqliteError> {
        if self.unacknowledged.is_empty() {
            return Ok(());
        }
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut change = self.totals.change();
        let mut usage = self.usage.change();
        for spend in &self.unacknowledged {
            if let Some(voided) = rows::insert_void(&tx, spend)? {
                change.add_void(voided.workspace, voided.lookup_id, voided.credits);
                usage.add_void(&voided);
            }
        }
        self.totals.write(&tx, &mut change)?;
        usage.write(&tx)?;
        tx.commit()?;
        self.totals.apply(change);
        self.usage.apply(usage);
        for spend in self.unacknowledged.drain(..) {
            self.shared.account(&spend.state).void_spend(&spend.hold);
        }
        Ok(())
    }

    /// Writes spends. Returns for each whether it counts, that is, was not voided before.
    fn write_spends(&mut self, spends: &[QueuedSpend]) -> Result<Vec<bool>, SqliteError> {
        match self.write_rows(spends, ROWS)? {
            Some(committed) => Ok(committed),
            // A multi-row statement does not report which of its rows existed already.
            None => Ok(self.write_rows(spends, 1)?.unwrap_or_default()),
        }
    }

    /// Writes spends and advances the totals in one transaction. An error rolls it back.
    ///
    /// Returns `None`, without writing anything, if a multi-row statement includes a spend that exists already.
    fn write_rows(&mut self, spends: &[QueuedSpend], rows: usize) -> Result<Option<Vec<bool>>, SqliteError> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut change = self.totals.advance(&tx, spends.len())?;
        let mut usage = self.usage.change();
        let mut committed = Vec::with_capacity(spends.len());
        let many = spends.chunks_exact(rows);
        let rest = many.remainder().chunks(1);
        for spends in many.chain(rest) {
            let is_new = rows::insert_spends(&tx, spends)? == spends.len();
            if !is_new && spends.len() > 1 {
                return Ok(None);
            }
            for spend in spends {
                if is_new {
                    let billed = spend.billed_lookup();
                    change.add(billed.workspace, billed.lookup_id, billed.credits);
                    usage.add(&billed);
                }
                // A spend that exists already was written by an attempt whose reply was lost.
                committed.push(is_new || !rows::is_voided(&tx, &spend.hold)?);
            }
        }
        self.totals.write(&tx, &mut change)?;
        usage.write(&tx)?;
        tx.commit()?;
        self.totals.apply(change);
        self.usage.apply(usage);
        Ok(Some(committed))
    }

    fn tick(&mut self, now: Timestamp) -> Result<(), SqliteError> {
        let error = self.flush_error.clone().map(StoreError::NotCommitted);
        let flushed = error.map_or(Ok(()), |error| Err(error.into()));
        let voided = self.void();
        let used = self.advance(now);
        self.detector.on_change(&self.db, || {
            self.shared.keys.clear();
            rows::read_grants(&self.db, &self.shared, &mut self.grants_seen)
        })?;
        flushed.and(voided).and(self.write_statistics(&used))
    }

    /// Expires overdue holds. Returns the accounts whose holds may have changed since the last tick. Idle accounts
    /// receive the time when they are used next.
    fn advance(&mut self, now: Timestamp) -> Vec<Arc<WorkspaceState>> {
        let is_set_back = now + Account::TOMBSTONE_TTL < self.shared.now();
        self.shared.set_time(now);
        let mut used = self.shared.take_touched();
        if is_set_back {
            // The clock was set back. All deadlines move with it, so every account is scheduled again.
            self.expiry_queue.clear();
            used = self.shared.all();
            used.iter().for_each(|state| state.due_ms.store(u64::MAX, Ordering::Relaxed));
        }
        while let Some(entry) = self.expiry_queue.first_entry()
            && *entry.key() <= now
        {
            let (due, states) = entry.remove_entry();
            for state in states {
                // The account may have been scheduled for an earlier time since then.
                if state.due_ms.load(Ordering::Relaxed) == due.unix_ms() {
                    state.due_ms.store(u64::MAX, Ordering::Relaxed);
                    used.push(state);
                }
            }
        }
        for state in &used {
            let mut account = state.account();
            account.advance(now);
            if let Some(due) = account.next_due()
                && due.unix_ms() < state.due_ms.load(Ordering::Relaxed)
            {
                state.due_ms.store(due.unix_ms(), Ordering::Relaxed);
                self.expiry_queue.entry(due).or_default().push(state.clone());
            }
        }
        used
    }

    /// Writes the values that operators can view: held credits, when keys were last used, and usage.
    fn write_statistics(&mut self, states: &[Arc<WorkspaceState>]) -> Result<(), SqliteError> {
        let used = self.shared.keys.take_used(KEY_USES_MAX);
        let free = self.shared.usage.take();
        let written = &self.held_written;
        let held = states.iter().map(|state| (state.rowid, state.balance().held));
        let held: BTreeMap<_, _> =
            held.filter(|(rowid, held)| written.get(rowid).copied().unwrap_or(0) != *held).collect();
        if used.is_empty() && held.is_empty() && free.is_empty() && !self.usage.has_pending() {
            return Ok(());
        }
        if let Err(error) = self.write_statistics_rows(&used, &held, &free) {
            self.shared.usage.put_back(free);
            return Err(error);
        }
        self.usage.flushed();
        for (rowid, held) in held {
            if held == 0 {
                self.held_written.remove(&rowid)
            } else {
                self.held_written.insert(rowid, held)
            };
        }
        Ok(())
    }

    fn write_statistics_rows(
        &mut self,
        used: &[KeyUse],
        held: &BTreeMap<i64, u64>,
        free: &[UsageCount],
    ) -> Result<(), SqliteError> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        rows::write_key_uses(&tx, used)?;
        rows::write_held(&tx, held)?;
        usage::add_free(&tx, Day::of(self.shared.now()), free)?;
        self.usage.flush(&tx)?;
        Ok(tx.commit()?)
    }
}

/// Yields once, so that the executor can pause and the next commit covers more spends.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
