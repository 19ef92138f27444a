//! The spent total of each workspace.
//!
//! When many workspaces spend at once, updating a workspace's row with each spend costs more than the spends
//! themselves. Therefore the rows lag behind: `workspace.spent` includes the spends up to a certain lookup
//! id, and the later spends are the *tail*. When the tail is long, it is added to the rows in rowid order, a
//! few rows with each commit, so that one page write covers many rows. The progress is stored in
//! `spent_until` in the same transaction. The view `account` therefore returns complete totals to any process
//! at any time.
//!
//! A workspace must not spend more than it was granted. Its row does not include the tail, so this module
//! caches the *unspent* credits of each row: granted minus spent. Spends above them are not committed.

use std::collections::BTreeMap;

use enrich_lib::credit::AccountError;
use enrich_lib::model::LookupId;
use rusqlite::{Connection, Transaction, params};
use rustc_hash::FxHashMap;

use crate::error::SqliteError;
use crate::files::database;

/// Minimum and maximum length of the tail, in spends, at which it is added to the rows. In between, the
/// threshold is eight spends per workspace in the tail. A restart or a balance query adds up at most twice
/// the maximum.
const TAIL: [usize; 2] = [4_096, 1 << 19];

/// The progress of the rows, and the credits that they do not include yet. All spends in the tail are from
/// this process.
pub(crate) struct Totals {
    progress: Progress,
    rows: FxHashMap<i64, Row>,
    /// Credits that are being added to the rows, by rowid: spends up to `progress.next`.
    moving: BTreeMap<i64, i64>,
    /// Spends after `progress.next`: their number, the number of their workspaces, and the newest one.
    tail: usize,
    tail_rows: usize,
    newest: LookupId,
    bounds: [usize; 2],
}

/// The spends that the rows include: up to `all`, or up to `next` for rowids up to `row`.
#[derive(Clone, Copy)]
struct Progress {
    all: LookupId,
    next: LookupId,
    row: i64,
}

impl Progress {
    fn of(&self, row: i64) -> LookupId {
        if row <= self.row { self.next } else { self.all }
    }
}

#[derive(Default)]
struct Row {
    /// Credits that can still be spent.
    unspent: i64,
    tail: i64,
}

/// Changes made by one transaction. [`Totals::apply`] applies them after the commit.
pub(crate) struct Change {
    progress: Progress,
    moved: usize,
    rows: BTreeMap<i64, Amounts>,
    /// Number of new spends in the tail.
    spends: usize,
    newest: LookupId,
}

/// Credits of one workspace, by destination.
#[derive(Default)]
struct Amounts {
    /// Spends that are older than the progress of the row. They are added to the row at once.
    late: i64,
    moving: i64,
    tail: i64,
    /// Unspent credits before these changes.
    unspent: i64,
}

impl Amounts {
    fn total(&self) -> i64 {
        self.late + self.moving + self.tail
    }
}

impl Change {
    fn new(progress: Progress) -> Self {
        Self { progress, moved: 0, rows: BTreeMap::new(), spends: 0, newest: progress.next }
    }

    /// Records a spend of `credits`.
    pub(crate) fn add(&mut self, row: i64, lookup_id: LookupId, credits: u64) {
        *self.sum(row, lookup_id) += credits.cast_signed();
        self.spends += usize::from(lookup_id > self.progress.next);
        self.newest = self.newest.max(lookup_id);
    }

    fn sum(&mut self, row: i64, lookup_id: LookupId) -> &mut i64 {
        let amounts = self.rows.entry(row).or_default();
        if lookup_id <= self.progress.of(row) {
            &mut amounts.late
        } else if lookup_id <= self.progress.next {
            &mut amounts.moving
        } else {
            &mut amounts.tail
        }
    }
}

impl Totals {
    /// Reads the progress, and adds a tail left by an earlier process to the rows. A row that is read for the
    /// first time is therefore complete.
    ///
    /// Errors: a constraint violation if a workspace has spent more than it was granted.
    pub(crate) fn open(db: &mut Connection) -> Result<Self, SqliteError> {
        Self::open_with(TAIL, db)
    }

    fn open_with(bounds: [usize; 2], db: &mut Connection) -> Result<Self, SqliteError> {
        let tx = database::begin(db)?;
        let (all, next) = tx.query_row("SELECT lookup_id, next_id FROM spent_until", [], |row| {
            Ok((LookupId::from_bytes(row.get(0)?), LookupId::from_bytes(row.get(1)?)))
        })?;
        let select = "SELECT max(lookup_id) FROM credit_spend";
        let newest: Option<[u8; 16]> = tx.query_row(select, [], |row| row.get(0))?;
        let newest = newest.map_or(next, LookupId::from_bytes).max(next);
        let progress = Progress { all: newest, next: newest, row: 0 };
        if all < newest {
            tx.execute(
                "UPDATE workspace SET spent = spent + t.credits FROM spent_in_tail t WHERE t.workspace = workspace.rowid",
                [],
            )?;
            write_progress(&tx, &progress)?;
            tx.commit()?;
        }
        Ok(Self {
            progress,
            rows: FxHashMap::default(),
            moving: BTreeMap::new(),
            tail: 0,
            tail_rows: 0,
            newest,
            bounds,
        })
    }

    /// Starts a change. If the tail is being added to the rows, updates up to `rows_max` of them.
    pub(crate) fn advance(&mut self, tx: &Transaction<'_>, rows_max: usize) -> Result<Change, SqliteError> {
        let [min, max] = self.bounds;
        if self.moving.is_empty() && self.tail >= (8 * self.tail_rows).clamp(min, max) {
            self.begin();
        }
        let mut change = self.change();
        let mut update = tx.prepare_cached("UPDATE workspace SET spent = spent + ? WHERE rowid = ?")?;
        for (row, credits) in self.moving.iter().take(rows_max) {
            match update.execute([credits, row]).map_err(SqliteError::from) {
                // The remaining rows wait. Totals in the view stay correct, and the next start reports the
                // error.
                Err(error) if error.is_constraint() => break,
                updated => updated?,
            };
            change.moved += 1;
            change.progress.row = *row;
        }
        if change.moved > 0 {
            if change.moved == self.moving.len() {
                change.progress = Progress { all: self.progress.next, row: 0, ..self.progress };
            }
            write_progress(tx, &change.progress)?;
        }
        Ok(change)
    }

    /// Starts a change that updates no rows from the tail.
    pub(crate) fn change(&self) -> Change {
        Change::new(self.progress)
    }

    /// Starts adding the tail to the rows.
    fn begin(&mut self) {
        let rows = self.rows.iter_mut().filter(|(_, row)| row.tail != 0);
        self.moving = rows.map(|(rowid, row)| (*rowid, std::mem::take(&mut row.tail))).collect();
        (self.tail, self.tail_rows) = (0, 0);
        self.progress.next = self.newest;
    }

    /// Checks the unspent credits of each workspace and adds late spends to the rows.
    ///
    /// Errors: [`AccountError::OverHold`] if a workspace would spend more than it was granted.
    pub(crate) fn write(&self, tx: &Transaction<'_>, change: &mut Change) -> Result<(), SqliteError> {
        for (rowid, amounts) in &mut change.rows {
            let known =
                self.rows.get(rowid).map(|row| row.unspent).filter(|unspent| *unspent >= amounts.total());
            // If the cached value is missing or too small, read it again: the workspace may have received a
            // grant.
            amounts.unspent = known.map_or_else(|| self.unspent(tx, *rowid, &change.progress), Ok)?;
            if amounts.total() > amounts.unspent {
                return Err(AccountError::OverHold.into());
            }
            if amounts.late != 0 {
                let update = "UPDATE workspace SET spent = spent + ? WHERE rowid = ?";
                tx.prepare_cached(update)?.execute([amounts.late, *rowid])?;
            }
        }
        Ok(())
    }

    fn unspent(&self, tx: &Transaction<'_>, rowid: i64, progress: &Progress) -> Result<i64, SqliteError> {
        let select = "SELECT granted - spent FROM workspace WHERE rowid = ?";
        let unspent: i64 = tx.prepare_cached(select)?.query_row([rowid], |row| row.get(0))?;
        let is_moved = progress.of(rowid) == progress.next;
        let moving = if is_moved { 0 } else { self.moving.get(&rowid).copied().unwrap_or_default() };
        Ok(unspent - moving - self.rows.get(&rowid).map_or(0, |row| row.tail))
    }

    /// Applies a change after its commit.
    pub(crate) fn apply(&mut self, change: Change) {
        self.progress = change.progress;
        for _ in 0..change.moved {
            self.moving.pop_first();
        }
        for (rowid, amounts) in change.rows {
            let row = self.rows.entry(rowid).or_default();
            row.unspent = amounts.unspent - amounts.total();
            self.tail_rows += usize::from(row.tail == 0 && amounts.tail > 0);
            row.tail += amounts.tail;
            if amounts.moving != 0 {
                *self.moving.entry(rowid).or_default() += amounts.moving;
            }
        }
        self.tail += change.spends;
        self.newest = self.newest.max(change.newest);
    }
}

fn write_progress(tx: &Transaction<'_>, progress: &Progress) -> Result<(), SqliteError> {
    let update = "UPDATE spent_until SET lookup_id = ?, next_id = ?, next_workspace = ?";
    tx.prepare_cached(update)?.execute(params![
        progress.all.as_bytes(),
        progress.next.as_bytes(),
        progress.row
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests;
