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
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use enrich_lib::credit::{Account, AccountError, Hold};
use enrich_lib::model::{Timestamp, WorkspaceId};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use rustc_hash::FxHashMap;

use crate::column::{ms, parsed};
use crate::database::Watch;
use crate::durability::Durability;
use crate::error::StoreError;
use crate::queue::Receiver;
use crate::shared::{Shared, Slot};
use crate::spend::{Asked, Spend, Woken};
use crate::sync::oneshot;
use crate::totals::Totals;

/// Number of spends in a multi-row `INSERT`. It takes half as long per spend as single-row statements.
const ROWS: usize = 16;

/// Maximum number of jobs in one commit. Bounds how long the first job waits for the last.
const BATCH_MAX: usize = 512;

pub(crate) enum Job {
    Spend(Asked),
    /// A durable spend whose reply was never sent.
    Void(Arc<Spend>),
    Tick {
        now: Timestamp,
        done: oneshot::Sender<Result<(), StoreError>>,
    },
}

pub(crate) struct Writer {
    db: Connection,
    shared: Arc<Shared>,
    durability: Durability,
    watch: Watch,
    totals: Totals,
    /// Rowid of the last grant that was applied.
    grants_seen: i64,
    /// Unflushed spends, and the error of the last attempt to write them.
    owed: Vec<Asked>,
    error: Option<String>,
    /// Durable, unacknowledged spends to void as soon as the disk accepts it.
    untold: Vec<Arc<Spend>>,
    /// Accounts by the time when they next have a hold to expire or to forget.
    calendar: BTreeMap<Timestamp, Vec<Arc<Slot>>>,
    /// The nonzero values of the `held` column, by rowid of the workspace.
    held_shown: FxHashMap<i64, u64>,
}

impl Writer {
    pub(crate) fn new(
        mut db: Connection,
        shared: Arc<Shared>,
        durability: Durability,
    ) -> Result<Self, StoreError> {
        // Keeps the statement journal of a multi-row `INSERT`, a few pages, in memory instead of a temporary file.
        db.pragma_update(None, "temp_store", "MEMORY")?;
        // Holds of an earlier process ended with it.
        db.execute("UPDATE workspace SET held = 0 WHERE held <> 0", [])?;
        let totals = Totals::open(&mut db)?;
        let watch = Watch::new(&db)?;
        let grants_seen =
            db.query_row("SELECT coalesce(max(rowid), 0) FROM credit_grant", [], |row| row.get(0))?;
        Ok(Self {
            db,
            shared,
            durability,
            watch,
            totals,
            grants_seen,
            owed: Vec::new(),
            error: None,
            untold: Vec::new(),
            calendar: BTreeMap::new(),
            held_shown: FxHashMap::default(),
        })
    }

    pub(crate) async fn run(mut self, mut jobs: Receiver<Job>) {
        let mut batch = Vec::new();
        while jobs.take(&mut batch, BATCH_MAX).await {
            let mut asked = Vec::new();
            let mut ticks = Vec::new();
            for job in batch.drain(..) {
                match job {
                    Job::Spend(spend) if spend.is_told => self.owed.push(spend),
                    Job::Spend(spend) if spend.is_given_up() => {
                        self.shared.account(&spend.slot).abort_spend(&spend.hold);
                    }
                    Job::Spend(spend) => asked.push(spend),
                    Job::Void(untold) => self.untold.push(untold),
                    Job::Tick { now, done } => ticks.push((now, done)),
                }
            }
            self.commit(asked);
            // The next tick retries a failed void and reports the error.
            let _ = self.void();
            for (now, done) in ticks {
                let _ = done.send(self.tick(now));
            }
            if self.durability == Durability::Relaxed {
                gather().await;
            }
        }
    }

    /// Writes unflushed and new spends as one batch.
    fn commit(&mut self, asked: Vec<Asked>) {
        let mut spends = mem::take(&mut self.owed);
        if spends.is_empty() && asked.is_empty() {
            return;
        }
        let owed_before = spends.len();
        spends.extend(asked);
        self.error = None;
        let mut woken = Woken::default();
        self.write(spends, &mut woken);
        self.shared.owed.settle(owed_before - self.owed.len(), self.error.is_some());
        woken.wake();
    }

    fn write(&mut self, spends: Vec<Asked>, woken: &mut Woken) {
        match self.write_spends(&spends) {
            Ok(stand) => {
                spends.into_iter().zip(stand).for_each(|(spend, stands)| self.answer(spend, stands, woken));
            }
            // A constraint rejected one workspace's spend. Write each spend alone, so that the others succeed.
            Err(error) if spends.len() > 1 && error.is_constraint() => {
                spends.into_iter().for_each(|spend| self.write(vec![spend], woken));
            }
            Err(error) => {
                let told = error.to_string();
                for spend in spends {
                    if spend.is_told {
                        self.owed.push(spend);
                        self.error.get_or_insert_with(|| told.clone());
                    } else {
                        self.shared.account(&spend.slot).abort_spend(&spend.hold);
                        spend.answer(Err(StoreError::NotWritten(told.clone())), woken);
                    }
                }
            }
        }
    }

    /// Sends the reply to a committed spend, or an error if it was voided before. The account stays locked meanwhile,
    /// so that a caller that receives the reply finds the credits spent.
    fn answer(&mut self, spend: Asked, stands: bool, woken: &mut Woken) {
        if spend.is_told {
            return;
        }
        let mut account = self.shared.account(&spend.slot);
        if !stands {
            account.abort_spend(&spend.hold);
            spend.answer(Err(AccountError::Ended.into()), woken);
        } else if spend.answer(Ok(()), woken) {
            account.commit_spend(&spend.hold);
            // The spend is acknowledged now, so the void of an earlier, abandoned attempt is cancelled.
            self.untold.retain(|untold| untold.hold.lookup_id != spend.hold.lookup_id);
        } else {
            self.untold.push(spend.0.clone());
        }
    }

    /// Voids the unacknowledged spends. Until the void is durable, their credits are held.
    fn void(&mut self) -> Result<(), StoreError> {
        if self.untold.is_empty() {
            return Ok(());
        }
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut change = self.totals.change();
        for spend in &self.untold {
            let Spend { slot, hold, .. } = &**spend;
            let insert = "INSERT INTO credit_void (lookup_id, at) VALUES (?, ?) ON CONFLICT DO NOTHING";
            let row = params![hold.lookup_id.as_bytes(), ms(hold.placed_at)];
            if tx.prepare_cached(insert)?.execute(row)? == 1 {
                let select = "SELECT credits FROM credit_spend WHERE lookup_id = ?";
                let credits =
                    tx.prepare_cached(select)?.query_row([hold.lookup_id.as_bytes()], |row| row.get(0))?;
                change.take_back(slot.rowid, hold.lookup_id, credits);
            }
        }
        self.totals.write(&tx, &mut change)?;
        tx.commit()?;
        self.totals.committed(change);
        for spend in self.untold.drain(..) {
            self.shared.account(&spend.slot).void_spend(&spend.hold);
        }
        Ok(())
    }

    /// Writes spends. Returns for each whether it counts, that is, was not voided before.
    fn write_spends(&mut self, spends: &[Asked]) -> Result<Vec<bool>, StoreError> {
        match self.write_rows(spends, ROWS)? {
            Some(stand) => Ok(stand),
            // A multi-row statement does not report which of its rows existed already.
            None => Ok(self.write_rows(spends, 1)?.unwrap_or_default()),
        }
    }

    /// Writes spends and advances the totals in one transaction. An error rolls it back.
    ///
    /// Returns `None`, without writing anything, if a multi-row statement includes a spend that exists already.
    fn write_rows(&mut self, spends: &[Asked], rows: usize) -> Result<Option<Vec<bool>>, StoreError> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut change = self.totals.advance(&tx, spends.len())?;
        let mut stand = Vec::with_capacity(spends.len());
        let many = spends.chunks_exact(rows);
        let rest = many.remainder().chunks(1);
        for spends in many.chain(rest) {
            let is_new = insert_spends(&tx, spends)? == spends.len();
            if !is_new && spends.len() > 1 {
                return Ok(None);
            }
            for spend in spends {
                let Spend { slot, hold, credits, .. } = &***spend;
                if is_new {
                    change.add(slot.rowid, hold.lookup_id, *credits);
                }
                // A spend that exists already was written by an attempt whose reply was lost.
                stand.push(is_new || !is_voided(&tx, hold)?);
            }
        }
        self.totals.write(&tx, &mut change)?;
        tx.commit()?;
        self.totals.committed(change);
        Ok(Some(stand))
    }

    fn tick(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let owed = self.error.clone().map_or(Ok(()), |error| Err(StoreError::NotWritten(error)));
        let voided = self.void();
        let used = self.advance(now);
        self.watch.on_change(&self.db, || {
            self.shared.keys.empty();
            read_grants(&self.db, &self.shared, &mut self.grants_seen)
        })?;
        owed.and(voided).and(self.show(&used))
    }

    /// Expires overdue holds. Returns the accounts whose holds may have changed since the last tick. Idle accounts
    /// receive the time when they are used next.
    fn advance(&mut self, now: Timestamp) -> Vec<Arc<Slot>> {
        let is_set_back = now + Account::TOMBSTONE_TTL < self.shared.now();
        self.shared.set_time(now);
        let mut used = self.shared.take_touched();
        if is_set_back {
            // The clock was set back. All deadlines move with it, so every account is scheduled again.
            self.calendar.clear();
            used = self.shared.all_slots();
            used.iter().for_each(|slot| slot.due_ms.store(u64::MAX, Ordering::Relaxed));
        }
        while let Some(day) = self.calendar.first_entry()
            && *day.key() <= now
        {
            let (due, slots) = day.remove_entry();
            for slot in slots {
                // The account may have been scheduled for an earlier time since then.
                if slot.due_ms.load(Ordering::Relaxed) == due.unix_ms() {
                    slot.due_ms.store(u64::MAX, Ordering::Relaxed);
                    used.push(slot);
                }
            }
        }
        for slot in &used {
            let mut account = slot.account();
            account.advance(now);
            if let Some(due) = account.next_due()
                && due.unix_ms() < slot.due_ms.load(Ordering::Relaxed)
            {
                slot.due_ms.store(due.unix_ms(), Ordering::Relaxed);
                self.calendar.entry(due).or_default().push(slot.clone());
            }
        }
        used
    }

    /// Writes the values that operators can view: held credits, and when keys were last used.
    fn show(&mut self, slots: &[Arc<Slot>]) -> Result<(), StoreError> {
        let used = self.shared.keys.take_used();
        let shown = &mut self.held_shown;
        let held = slots.iter().map(|slot| (slot.rowid, slot.balance().held));
        let changed: BTreeMap<_, _> =
            held.filter(|(rowid, held)| shown.get(rowid).copied().unwrap_or(0) != *held).collect();
        if used.is_empty() && changed.is_empty() {
            return Ok(());
        }
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for key in used {
            let update = "UPDATE api_key SET last_used_at = ? WHERE digest = ?";
            tx.prepare_cached(update)?.execute(params![key.at_ms, key.digest.as_bytes()])?;
        }
        for (rowid, held) in &changed {
            tx.prepare_cached("UPDATE workspace SET held = ? WHERE rowid = ?")?
                .execute(params![held, rowid])?;
        }
        tx.commit()?;
        for (rowid, held) in changed {
            if held == 0 {
                shown.remove(&rowid)
            } else {
                shown.insert(rowid, held)
            };
        }
        Ok(())
    }
}

/// Yields once, so that the executor can pause and the next commit covers more spends.
async fn gather() {
    let mut has_paused = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_paused, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Applies grants by other processes with a rowid greater than `seen`. A workspace's granted total never decreases.
fn read_grants(db: &Connection, shared: &Shared, seen: &mut i64) -> Result<(), StoreError> {
    let mut select = db.prepare_cached(
        "SELECT max(g.rowid), w.id, w.granted FROM credit_grant g JOIN workspace w ON w.rowid = g.workspace
         WHERE g.rowid > ? GROUP BY w.rowid ORDER BY w.rowid",
    )?;
    let mut rows = select.query([*seen])?;
    let mut last = *seen;
    while let Some(row) = rows.next()? {
        last = last.max(row.get(0)?);
        let (id, granted): (WorkspaceId, u64) = (parsed(row, 1, |id: String| id.parse())?, row.get(2)?);
        // Waits if the account is being read from disk at this moment.
        if let Some(slot) = shared.known_slot(&id) {
            let mut account = slot.account();
            let new = granted.saturating_sub(account.balance().granted);
            account.grant(new)?;
        }
    }
    *seen = last;
    Ok(())
}

/// Inserts spends. Returns how many of them are new.
fn insert_spends(tx: &Transaction<'_>, spends: &[Asked]) -> Result<usize, StoreError> {
    static ONE: LazyLock<String> = LazyLock::new(|| insert_of(1));
    static MANY: LazyLock<String> = LazyLock::new(|| insert_of(ROWS));
    let mut insert = tx.prepare_cached(if spends.len() == 1 { &ONE } else { &MANY })?;
    let mut places = 1..;
    let mut place = || places.next().unwrap_or_default();
    for spend in spends {
        let Spend { slot, hold, credits, .. } = &***spend;
        insert.raw_bind_parameter(place(), hold.lookup_id.as_bytes())?;
        insert.raw_bind_parameter(place(), slot.rowid)?;
        insert.raw_bind_parameter(place(), credits)?;
        insert.raw_bind_parameter(place(), ms(hold.placed_at))?;
    }
    Ok(insert.raw_execute()?)
}

fn insert_of(rows: usize) -> String {
    let rows = vec!["(?, ?, ?, ?)"; rows].join(", ");
    format!(
        "INSERT INTO credit_spend (lookup_id, workspace, credits, at) VALUES {rows} ON CONFLICT (lookup_id) DO NOTHING"
    )
}

fn is_voided(tx: &Transaction<'_>, hold: &Hold) -> Result<bool, StoreError> {
    let select = "SELECT EXISTS (SELECT 1 FROM credit_void WHERE lookup_id = ?)";
    Ok(tx.prepare_cached(select)?.query_row([hold.lookup_id.as_bytes()], |row| row.get(0))?)
}
