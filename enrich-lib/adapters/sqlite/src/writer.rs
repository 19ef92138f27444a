//! Group commit: one writer, and one commit for all spends that gathered while the last one was on its way to the
//! disk. There is no waiting window: alone, a spend is committed at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use enrich_lib::credit::Hold;
use enrich_lib::model::Timestamp;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use crate::column::ms;
use crate::database::Watch;
use crate::error::StoreError;
use crate::shared::{Shared, Slot};

/// The most jobs in one commit: bounds how long the first of them waits for the last.
const BATCH_MAX: usize = 512;

pub(crate) enum Job {
    Spend(Spend),
    Tick { now: Timestamp, done: Answer },
}

/// A spend that [`enrich_lib::credit::Account::begin_spend`] has begun.
pub(crate) struct Spend {
    pub(crate) slot: Arc<Slot>,
    pub(crate) hold: Hold,
    pub(crate) credits: u64,
    pub(crate) done: Answer,
}

/// Where the job's answer goes. Nobody may be listening any more; the job is done all the same.
type Answer = oneshot::Sender<Result<(), StoreError>>;

pub(crate) struct Writer {
    db: Connection,
    shared: Arc<Shared>,
    watch: Watch,
    /// What the `held` column says, by workspace; 0 where it says nothing.
    held_shown: HashMap<i64, u64>,
}

impl Writer {
    pub(crate) fn new(db: Connection, shared: Arc<Shared>) -> Result<Self, StoreError> {
        // Whatever an earlier process held ended with it.
        db.execute("UPDATE workspace SET held = 0 WHERE held <> 0", [])?;
        let watch = Watch::new(&db)?;
        Ok(Self { db, shared, watch, held_shown: HashMap::new() })
    }

    pub(crate) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let mut batch = Vec::new();
        while jobs.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let mut spends = Vec::new();
            let mut ticks = Vec::new();
            for job in batch.drain(..) {
                match job {
                    Job::Spend(spend) => spends.push(spend),
                    Job::Tick { now, done } => ticks.push((now, done)),
                }
            }
            self.commit(spends);
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
            Ok(()) => {
                for spend in spends {
                    spend.slot.account().commit_spend(&spend.hold);
                    let _ = spend.done.send(Ok(()));
                }
            }
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

    /// One transaction: a row a spend, and one update a workspace. It is rolled back unless it is committed.
    fn write_spends(&mut self, spends: &[Spend]) -> Result<(), StoreError> {
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut totals = BTreeMap::new();
        for Spend { slot, hold, credits, .. } in spends {
            let mut insert = tx.prepare_cached(
                "INSERT INTO credit_spend (lookup_id, workspace, credits, at) VALUES (?, ?, ?, ?)
                 ON CONFLICT (lookup_id) DO NOTHING",
            )?;
            let row = params![hold.lookup_id.as_bytes(), slot.rowid, credits, ms(hold.placed_at)];
            // A spend that is already there was written by an attempt whose answer was lost.
            if insert.execute(row)? == 1 {
                *totals.entry(slot.rowid).or_insert(0) += credits;
            }
        }
        for (rowid, credits) in totals {
            let mut update = tx.prepare_cached("UPDATE workspace SET spent = spent + ? WHERE rowid = ?")?;
            update.execute(params![credits, rowid])?;
        }
        tx.commit()?;
        Ok(())
    }

    fn tick(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let slots = self.shared.slots();
        slots.iter().for_each(|slot| slot.account().advance(now));
        self.shared.keys.set_time(now);
        self.watch.on_change(&self.db, || {
            self.shared.keys.empty();
            // Listed anew: an account that was read since `slots` may have been read just before the change.
            read_grants(&self.db, &self.shared.slots())
        })?;
        self.show(&slots)
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

fn is_constraint(error: &StoreError) -> bool {
    matches!(error, StoreError::Database(e) if e.sqlite_error_code() == Some(ErrorCode::ConstraintViolation))
}
