//! What each workspace has spent, in its row.
//!
//! To write a workspace's row with each of its spends costs more than the spends do, when many workspaces spend at once. So
//! the rows follow: `workspace.spent` has the spends up to a lookup, and those after it are the *tail*. When the tail is
//! long, the rows take it over in their order, a few with each commit, so that each page is written for many of them. How far
//! they are stands in `spent_until`, in the same transaction: from any process, at any moment, the view `account` has all.
//!
//! No row takes more than was granted. The tail is in no row yet, so each row's *room* is here, as read from it: what has no
//! room is not committed.

use std::collections::BTreeMap;

use enrich_lib::credit::AccountFault;
use enrich_lib::model::LookupId;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use rustc_hash::FxHashMap;

use crate::error::StoreError;

/// The fewest and the most spends that the tail has when it is taken over; in between, it is eight for each workspace in it.
/// Twice as many are what a start adds up, and an operator who asks for a balance.
const TAIL: [usize; 2] = [4_096, 1 << 19];

/// What the rows have, and what they don't have yet. All spends in the tail are of this process.
pub(crate) struct Totals {
    until: Until,
    rows: FxHashMap<i64, Row>,
    /// What is being taken over, by row: spends up to `until.next`.
    moving: BTreeMap<i64, i64>,
    /// Spends after `until.next`, workspaces that have some, and the newest of them.
    tail: usize,
    tail_rows: usize,
    newest: LookupId,
    bounds: [usize; 2],
}

/// Which spends the rows have: up to `all`; the rows up to `row` have those up to `next`.
#[derive(Clone, Copy)]
struct Until {
    all: LookupId,
    next: LookupId,
    row: i64,
}

impl Until {
    fn of(&self, row: i64) -> LookupId {
        if row <= self.row { self.next } else { self.all }
    }
}

#[derive(Default)]
struct Row {
    /// What can be spent still.
    room: i64,
    tail: i64,
}

/// What a transaction does to the totals. They have it once it is committed.
pub(crate) struct Change {
    until: Until,
    moved: usize,
    rows: BTreeMap<i64, Sums>,
    /// Those of the tail.
    spends: usize,
    newest: LookupId,
}

/// Credits of a workspace, by where they go; less than 0 if they are given back.
#[derive(Default)]
struct Sums {
    /// Its row has younger ones: at once into the row.
    late: i64,
    moving: i64,
    tail: i64,
    /// Before all of that.
    room: i64,
}

impl Sums {
    fn total(&self) -> i64 {
        self.late + self.moving + self.tail
    }
}

impl Change {
    fn new(until: Until) -> Self {
        Self { until, moved: 0, rows: BTreeMap::new(), spends: 0, newest: until.next }
    }

    /// A spend of `credits` is written.
    pub(crate) fn add(&mut self, row: i64, lookup_id: LookupId, credits: u64) {
        *self.sum(row, lookup_id) += credits.cast_signed();
        self.spends += usize::from(lookup_id > self.until.next);
        self.newest = self.newest.max(lookup_id);
    }

    /// A spend of `credits` is taken back.
    pub(crate) fn take_back(&mut self, row: i64, lookup_id: LookupId, credits: u64) {
        *self.sum(row, lookup_id) -= credits.cast_signed();
    }

    fn sum(&mut self, row: i64, lookup_id: LookupId) -> &mut i64 {
        let sums = self.rows.entry(row).or_default();
        if lookup_id <= self.until.of(row) {
            &mut sums.late
        } else if lookup_id <= self.until.next {
            &mut sums.moving
        } else {
            &mut sums.tail
        }
    }
}

impl Totals {
    /// Whatever tail an earlier process left is taken over: so a row that is read the first time has all.
    ///
    /// Errors: a constraint's, if a row was granted less.
    pub(crate) fn open(db: &mut Connection) -> Result<Self, StoreError> {
        Self::open_with(TAIL, db)
    }

    fn open_with(bounds: [usize; 2], db: &mut Connection) -> Result<Self, StoreError> {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (all, next) = tx.query_row("SELECT lookup_id, next_id FROM spent_until", [], |row| {
            Ok((LookupId::from_bytes(row.get(0)?), LookupId::from_bytes(row.get(1)?)))
        })?;
        let select = "SELECT max(lookup_id) FROM credit_spend";
        let newest: Option<[u8; 16]> = tx.query_row(select, [], |row| row.get(0))?;
        let newest = newest.map_or(next, LookupId::from_bytes).max(next);
        let until = Until { all: newest, next: newest, row: 0 };
        if all < newest {
            tx.execute(
                "UPDATE workspace SET spent = spent + t.credits FROM spent_in_tail t WHERE t.workspace = workspace.rowid",
                [],
            )?;
            write_until(&tx, &until)?;
            tx.commit()?;
        }
        Ok(Self {
            until,
            rows: FxHashMap::default(),
            moving: BTreeMap::new(),
            tail: 0,
            tail_rows: 0,
            newest,
            bounds,
        })
    }

    /// A change that moves up to so many rows on, if the tail is to be taken over.
    pub(crate) fn advance(&mut self, tx: &Transaction<'_>, rows_max: usize) -> Result<Change, StoreError> {
        let [min, max] = self.bounds;
        if self.moving.is_empty() && self.tail >= (8 * self.tail_rows).clamp(min, max) {
            self.begin();
        }
        let mut change = self.change();
        let mut update = tx.prepare_cached("UPDATE workspace SET spent = spent + ? WHERE rowid = ?")?;
        for (row, credits) in self.moving.iter().take(rows_max) {
            match update.execute([credits, row]).map_err(StoreError::from) {
                // The others wait for it. Their totals are as true as before, and the next start tells of it.
                Err(error) if error.is_constraint() => break,
                updated => updated?,
            };
            change.moved += 1;
            change.until.row = *row;
        }
        if change.moved > 0 {
            if change.moved == self.moving.len() {
                change.until = Until { all: self.until.next, row: 0, ..self.until };
            }
            write_until(tx, &change.until)?;
        }
        Ok(change)
    }

    /// A change that moves nothing on.
    pub(crate) fn change(&self) -> Change {
        Change::new(self.until)
    }

    /// From here on the rows take over what is in the tail.
    fn begin(&mut self) {
        let rows = self.rows.iter_mut().filter(|(_, row)| row.tail != 0);
        self.moving = rows.map(|(rowid, row)| (*rowid, std::mem::take(&mut row.tail))).collect();
        (self.tail, self.tail_rows) = (0, 0);
        self.until.next = self.newest;
    }

    /// Writes what goes into rows at once.
    ///
    /// Errors: [`AccountFault::OverHold`] if a workspace was granted less than it would have spent.
    pub(crate) fn write(&self, tx: &Transaction<'_>, change: &mut Change) -> Result<(), StoreError> {
        for (rowid, sums) in &mut change.rows {
            let known = self.rows.get(rowid).map(|row| row.room).filter(|room| *room >= sums.total());
            // It may have been granted more.
            sums.room = known.map_or_else(|| self.room(tx, *rowid, &change.until), Ok)?;
            if sums.total() > sums.room {
                return Err(AccountFault::OverHold.into());
            }
            if sums.late != 0 {
                let update = "UPDATE workspace SET spent = spent + ? WHERE rowid = ?";
                tx.prepare_cached(update)?.execute([sums.late, *rowid])?;
            }
        }
        Ok(())
    }

    fn room(&self, tx: &Transaction<'_>, rowid: i64, until: &Until) -> Result<i64, StoreError> {
        let select = "SELECT granted - spent FROM workspace WHERE rowid = ?";
        let room: i64 = tx.prepare_cached(select)?.query_row([rowid], |row| row.get(0))?;
        let is_moved = until.of(rowid) == until.next;
        let moving = if is_moved { 0 } else { self.moving.get(&rowid).copied().unwrap_or_default() };
        Ok(room - moving - self.rows.get(&rowid).map_or(0, |row| row.tail))
    }

    /// The change is on the disk.
    pub(crate) fn committed(&mut self, change: Change) {
        self.until = change.until;
        for _ in 0..change.moved {
            self.moving.pop_first();
        }
        for (rowid, sums) in change.rows {
            let row = self.rows.entry(rowid).or_default();
            row.room = sums.room - sums.total();
            self.tail_rows += usize::from(row.tail == 0 && sums.tail > 0);
            row.tail += sums.tail;
            if sums.moving != 0 {
                *self.moving.entry(rowid).or_default() += sums.moving;
            }
        }
        self.tail += change.spends;
        self.newest = self.newest.max(change.newest);
    }
}

fn write_until(tx: &Transaction<'_>, until: &Until) -> Result<(), StoreError> {
    let update = "UPDATE spent_until SET lookup_id = ?, next_id = ?, next_workspace = ?";
    tx.prepare_cached(update)?.execute(params![until.all.as_bytes(), until.next.as_bytes(), until.row])?;
    Ok(())
}

#[cfg(test)]
mod tests;
