//! Group commit: one writer, and one commit for all spends that gathered while the last one was on its way to the
//! disk. There is no waiting window: alone, a spend is committed at once.
//!
//! A spend stands if somebody is told of it. One that nobody waits for any more is not written, and one that was written
//! and could not be told is voided: its lookup was answered with 500.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use enrich_lib::credit::{AccountFault, Hold};
use enrich_lib::model::Timestamp;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};

use crate::column::ms;
use crate::database::Watch;
use crate::error::StoreError;
use crate::shared::{Shared, Slot};
use crate::sync::{mpsc, oneshot};

/// The most jobs in one commit: bounds how long the first of them waits for the last.
const BATCH_MAX: usize = 512;

pub(crate) enum Job {
    Spend(Spend),
    Void(Untold),
    Tick { now: Timestamp, done: Answer },
}

/// A spend that [`enrich_lib::credit::Account::begin_spend`] has begun.
pub(crate) struct Spend {
    pub(crate) slot: Arc<Slot>,
    pub(crate) hold: Hold,
    pub(crate) credits: u64,
    pub(crate) done: Answer,
}

/// A spend that is on the disk and that nobody was told of.
pub(crate) struct Untold {
    pub(crate) slot: Arc<Slot>,
    pub(crate) hold: Hold,
}

/// Where the job's answer goes. Nobody may be listening any more.
type Answer = oneshot::Sender<Result<(), StoreError>>;

pub(crate) struct Writer {
    db: Connection,
    shared: Arc<Shared>,
    watch: Watch,
    /// To be voided: as soon as the disk takes it.
    untold: Vec<Untold>,
    /// What the `held` column says, by workspace; 0 where it says nothing.
    held_shown: HashMap<i64, u64>,
}

impl Writer {
    pub(crate) fn new(db: Connection, shared: Arc<Shared>) -> Result<Self, StoreError> {
        // Whatever an earlier process held ended with it.
        db.execute("UPDATE workspace SET held = 0 WHERE held <> 0", [])?;
        let watch = Watch::new(&db)?;
        Ok(Self { db, shared, watch, untold: Vec::new(), held_shown: HashMap::new() })
    }

    pub(crate) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let mut batch = Vec::new();
        while jobs.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let mut spends = Vec::new();
            let mut ticks = Vec::new();
            for job in batch.drain(..) {
                match job {
                    Job::Spend(spend) if spend.done.is_closed() => {
                        spend.slot.account().abort_spend(&spend.hold)
                    }
                    Job::Spend(spend) => spends.push(spend),
                    Job::Void(untold) => self.untold.push(untold),
                    Job::Tick { now, done } => ticks.push((now, done)),
                }
            }
            self.commit(spends);
            // What fails here is tried again by the next tick, which tells.
            let _ = self.void();
            for (now, done) in ticks {
                let _ = done.send(self.tick(now));
            }
        }
    }

    fn commit(&mut self, spends: Vec<Spend>) {
        if spends.is_empty() {
            return;
        }
        match self.write_spends(&spends) {
            Ok(stand) => spends.into_iter().zip(stand).for_each(|(spend, stands)| self.answer(spend, stands)),
            // One workspace's row can't take its spend: the others' are written without it.
            Err(error) if spends.len() > 1 && is_constraint(&error) => {
                spends.into_iter().for_each(|spend| self.commit(vec![spend]));
            }
            Err(error) => {
                let told = error.to_string();
                for spend in spends {
                    spend.slot.account().abort_spend(&spend.hold);
                    let _ = spend.done.send(Err(StoreError::NotWritten(told.clone())));
                }
            }
        }
    }

    /// Tells of a spend that is on the disk, unless it was voided before. The account is locked meanwhile: whoever is
    /// told finds it spent.
    fn answer(&mut self, spend: Spend, stands: bool) {
        let Spend { slot, hold, done, .. } = spend;
        let mut account = slot.account();
        if !stands {
            account.abort_spend(&hold);
            let _ = done.send(Err(AccountFault::Ended.into()));
        } else if done.send(Ok(())).is_ok() {
            account.commit_spend(&hold);
            // Told now: an earlier attempt that nobody waited for is made good.
            self.untold.retain(|untold| untold.hold.lookup_id != hold.lookup_id);
        } else {
            drop(account);
            self.untold.push(Untold { slot, hold });
        }
    }

    /// Takes back what nobody was told of. Until that is on the disk, the credits are held.
    fn void(&mut self) -> Result<(), StoreError> {
        if self.untold.is_empty() {
            return Ok(());
        }
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for Untold { slot, hold } in &self.untold {
            let insert = "INSERT INTO credit_void (lookup_id, at) VALUES (?, ?) ON CONFLICT DO NOTHING";
            let row = params![hold.lookup_id.as_bytes(), ms(hold.placed_at)];
            if tx.prepare_cached(insert)?.execute(row)? == 1 {
                let update = "UPDATE workspace SET spent = spent - (SELECT credits FROM credit_spend WHERE lookup_id = ?)
                     WHERE rowid = ?";
                tx.prepare_cached(update)?.execute(params![hold.lookup_id.as_bytes(), slot.rowid])?;
            }
        }
        tx.commit()?;
        for Untold { slot, hold } in self.untold.drain(..) {
            slot.account().void_spend(&hold);
        }
        Ok(())
    }

    /// One transaction: a row a spend, and one update a workspace. It is rolled back unless it is committed. Tells of
    /// each spend whether it stands.
    fn write_spends(&mut self, spends: &[Spend]) -> Result<Vec<bool>, StoreError> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut totals = BTreeMap::new();
        let mut stand = Vec::with_capacity(spends.len());
        for Spend { slot, hold, credits, .. } in spends {
            let mut insert = tx.prepare_cached(
                "INSERT INTO credit_spend (lookup_id, workspace, credits, at) VALUES (?, ?, ?, ?)
                 ON CONFLICT (lookup_id) DO NOTHING",
            )?;
            let row = params![hold.lookup_id.as_bytes(), slot.rowid, credits, ms(hold.placed_at)];
            let is_new = insert.execute(row)? == 1;
            if is_new {
                *totals.entry(slot.rowid).or_insert(0) += credits;
            }
            // One that is already there was written by an attempt whose answer was lost.
            stand.push(is_new || !is_voided(&tx, hold)?);
        }
        for (rowid, credits) in totals {
            let mut update = tx.prepare_cached("UPDATE workspace SET spent = spent + ? WHERE rowid = ?")?;
            update.execute(params![credits, rowid])?;
        }
        tx.commit()?;
        Ok(stand)
    }

    fn tick(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let voided = self.void();
        let slots = self.shared.slots();
        slots.iter().for_each(|slot| slot.account().advance(now));
        self.shared.keys.set_time(now);
        self.watch.on_change(&self.db, || {
            self.shared.keys.empty();
            // Listed anew: an account that was read since `slots` may have been read just before the change.
            read_grants(&self.db, &self.shared.slots())
        })?;
        voided.and(self.show(&slots))
    }

    /// Writes what an operator wants to see: what is held, and when keys were last used.
    fn show(&mut self, slots: &[Arc<Slot>]) -> Result<(), StoreError> {
        let used = self.shared.keys.take_used();
        let shown = &mut self.held_shown;
        let held: Vec<_> = slots.iter().map(|slot| (slot.rowid, slot.account().balance().held)).collect();
        let changed: Vec<_> = held
            .into_iter()
            .filter(|(rowid, held)| shown.get(rowid).copied().unwrap_or(0) != *held)
            .collect();
        if used.is_empty() && changed.is_empty() {
            return Ok(());
        }
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for key in used {
            let used_at = key.last_used_ms.load(Ordering::Relaxed);
            update(&tx, "UPDATE api_key SET last_used_at = ? WHERE rowid = ?", used_at, key.rowid)?;
        }
        for (rowid, held) in &changed {
            update(&tx, "UPDATE workspace SET held = ? WHERE rowid = ?", *held, *rowid)?;
        }
        tx.commit()?;
        shown.extend(changed);
        Ok(())
    }
}

/// Takes over what other processes granted. Totals of grants only grow.
fn read_grants(db: &Connection, slots: &[Arc<Slot>]) -> Result<(), StoreError> {
    let mut select = db.prepare_cached("SELECT granted FROM workspace WHERE rowid = ?")?;
    for slot in slots {
        let granted: u64 = select.query_row([slot.rowid], |row| row.get(0))?;
        let mut account = slot.account();
        let new = granted.saturating_sub(account.balance().granted);
        account.grant(new)?;
    }
    Ok(())
}

fn update(tx: &Transaction<'_>, sql: &str, value: u64, rowid: i64) -> Result<(), StoreError> {
    tx.prepare_cached(sql)?.execute(params![value, rowid])?;
    Ok(())
}

fn is_voided(tx: &Transaction<'_>, hold: &Hold) -> Result<bool, StoreError> {
    let select = "SELECT EXISTS (SELECT 1 FROM credit_void WHERE lookup_id = ?)";
    Ok(tx.prepare_cached(select)?.query_row([hold.lookup_id.as_bytes()], |row| row.get(0))?)
}

fn is_constraint(error: &StoreError) -> bool {
    matches!(error, StoreError::Database(e) if e.sqlite_error_code() == Some(ErrorCode::ConstraintViolation))
}
