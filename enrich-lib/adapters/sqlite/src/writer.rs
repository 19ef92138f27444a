//! Group commit: one writer, and one commit for all spends that gathered while the last one was on its way to the
//! disk. In a strict ledger there is no waiting window: alone, a spend is committed at once. Otherwise the first of them lets
//! all that are ready to run come too, and rings then ([`crate::queue`]).
//!
//! A spend stands if somebody is told of it. One that nobody waits for any more is not written, and one that was written
//! and could not be told is voided: its lookup was answered with 500. One that was told before it is written is *owed*: it
//! is written again and again until it is on the disk.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use enrich_lib::credit::{Account, AccountFault, Hold};
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

/// How many spends one statement writes: for each of them it takes half of what one for a single spend does.
const ROWS: usize = 16;

/// The most jobs in one commit: bounds how long the first of them waits for the last.
const BATCH_MAX: usize = 512;

pub(crate) enum Job {
    Spend(Asked),
    /// A spend that is on the disk and that nobody was told of.
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
    /// The last grant that was taken over.
    grants_seen: i64,
    /// Told, and not on the disk yet; and why not, if that was tried.
    owed: Vec<Asked>,
    fault: Option<String>,
    /// To be voided: as soon as the disk takes it.
    untold: Vec<Arc<Spend>>,
    /// When which accounts have something to expire or to forget.
    calendar: BTreeMap<Timestamp, Vec<Arc<Slot>>>,
    /// What the `held` column says, by workspace, where it is not 0.
    held_shown: FxHashMap<i64, u64>,
}

impl Writer {
    pub(crate) fn new(
        mut db: Connection,
        shared: Arc<Shared>,
        durability: Durability,
    ) -> Result<Self, StoreError> {
        // A statement for many rows keeps what it may have to undo: a few pages, and no file is made for them.
        db.pragma_update(None, "temp_store", "MEMORY")?;
        // Whatever an earlier process held ended with it.
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
            fault: None,
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
            // What fails here is tried again by the next tick, which tells.
            let _ = self.void();
            for (now, done) in ticks {
                let _ = done.send(self.tick(now));
            }
            if self.durability == Durability::Relaxed {
                gather().await;
            }
        }
    }

    /// Writes what is owed and what is asked for, as one.
    fn commit(&mut self, asked: Vec<Asked>) {
        let mut spends = mem::take(&mut self.owed);
        if spends.is_empty() && asked.is_empty() {
            return;
        }
        let owed_before = spends.len();
        spends.extend(asked);
        self.fault = None;
        let mut woken = Woken::default();
        self.write(spends, &mut woken);
        self.shared.owed.settle(owed_before - self.owed.len(), self.fault.is_some());
        woken.wake();
    }

    fn write(&mut self, spends: Vec<Asked>, woken: &mut Woken) {
        match self.write_spends(&spends) {
            Ok(stand) => {
                spends.into_iter().zip(stand).for_each(|(spend, stands)| self.answer(spend, stands, woken));
            }
            // One workspace's row can't take its spend: the others' are written without it.
            Err(error) if spends.len() > 1 && error.is_constraint() => {
                spends.into_iter().for_each(|spend| self.write(vec![spend], woken));
            }
            Err(error) => {
                let told = error.to_string();
                for spend in spends {
                    if spend.is_told {
                        self.owed.push(spend);
                        self.fault.get_or_insert_with(|| told.clone());
                    } else {
                        self.shared.account(&spend.slot).abort_spend(&spend.hold);
                        spend.answer(Err(StoreError::NotWritten(told.clone())), woken);
                    }
                }
            }
        }
    }

    /// Tells of a spend that is on the disk, unless it was voided before. The account is locked meanwhile: whoever is
    /// told finds it spent.
    fn answer(&mut self, spend: Asked, stands: bool, woken: &mut Woken) {
        if spend.is_told {
            return;
        }
        let mut account = self.shared.account(&spend.slot);
        if !stands {
            account.abort_spend(&spend.hold);
            spend.answer(Err(AccountFault::Ended.into()), woken);
        } else if spend.answer(Ok(()), woken) {
            account.commit_spend(&spend.hold);
            // Told now: an earlier attempt that nobody waited for is made good.
            self.untold.retain(|untold| untold.hold.lookup_id != spend.hold.lookup_id);
        } else {
            self.untold.push(spend.0.clone());
        }
    }

    /// Takes back what nobody was told of. Until that is on the disk, the credits are held.
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

    /// Tells of each spend whether it stands.
    fn write_spends(&mut self, spends: &[Asked]) -> Result<Vec<bool>, StoreError> {
        match self.write_rows(spends, ROWS)? {
            Some(stand) => Ok(stand),
            // Which of many was there already, no statement for many tells.
            None => Ok(self.write_rows(spends, 1)?.unwrap_or_default()),
        }
    }

    /// One transaction: a row a spend, and some of the totals. It is rolled back unless it is committed. None if one of
    /// several rows that were to be written at once is there already.
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
                // One that is already there was written by an attempt whose answer was lost.
                stand.push(is_new || !is_voided(&tx, hold)?);
            }
        }
        self.totals.write(&tx, &mut change)?;
        tx.commit()?;
        self.totals.committed(change);
        Ok(Some(stand))
    }

    fn tick(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let owed = self.fault.clone().map_or(Ok(()), |fault| Err(StoreError::NotWritten(fault)));
        let voided = self.void();
        let used = self.advance(now);
        self.watch.on_change(&self.db, || {
            self.shared.keys.empty();
            read_grants(&self.db, &self.shared, &mut self.grants_seen)
        })?;
        owed.and(voided).and(self.show(&used))
    }

    /// Lets holds expire in the accounts that have any which are due, and returns those whose holds may be others than
    /// at the last tick. Accounts at rest are told the time when they are used.
    fn advance(&mut self, now: Timestamp) -> Vec<Arc<Slot>> {
        let is_set_back = now + Account::MEMORY < self.shared.now();
        self.shared.set_time(now);
        let mut used = self.shared.take_touched();
        if is_set_back {
            // It takes all deadlines with it, and the time of those at rest.
            self.calendar.clear();
            used = self.shared.all_slots();
            used.iter().for_each(|slot| slot.due_ms.store(u64::MAX, Ordering::Relaxed));
        }
        while let Some(day) = self.calendar.first_entry()
            && *day.key() <= now
        {
            let (due, slots) = day.remove_entry();
            for slot in slots {
                // It may have been put on an earlier day since.
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

    /// Writes what an operator wants to see: what is held, and when keys were last used.
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

/// Lets whoever runs the writer pause, so that the next commit is for more spends.
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

/// Takes over what other processes granted after the grant `seen`. Totals of grants only grow.
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
        // One that is being read at this moment is waited for.
        if let Some(slot) = shared.known_slot(&id) {
            let mut account = slot.account();
            let new = granted.saturating_sub(account.balance().granted);
            account.grant(new)?;
        }
    }
    *seen = last;
    Ok(())
}

/// How many of them are new.
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
