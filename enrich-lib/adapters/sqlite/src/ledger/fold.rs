//! The spent total of each workspace, and the billed lookups of each day.
//!
//! When many workspaces spend at once, updating their rows with each spend costs more than the spends
//! themselves. Therefore the rows lag behind: `workspace.spent` and `usage_day` include the spends up to a
//! certain lookup id, and the later spends are the *tail*. When the tail is long, it is added to the rows in
//! the order of workspaces, a few with each commit, so that one page write covers many rows. The progress is
//! stored in `counted_until` in the same transaction. The views `account` and `uncounted_usage` therefore
//! return the rest to any process at any time.
//!
//! A workspace must not spend more than it was granted. Its row does not include the tail, so this module
//! caches the *unspent* credits of each row: granted minus spent. Spends above them are not committed.

use std::collections::BTreeMap;

use enrich_lib::credit::AccountError;
use enrich_lib::model::LookupId;
use enrich_store::usage::BILLED;
use rusqlite::{Connection, Transaction, params};
use rustc_hash::FxHashMap;

use super::usage::{self, BilledLookup, Count, UsageKey};
use crate::error::SqliteError;
use crate::files::database;

/// Minimum and maximum length of the tail, in spends, at which it is added to the rows. In between, the
/// threshold is eight spends per workspace in the tail. A restart, or a query of a balance or of usage, adds
/// up at most twice the maximum.
const TAIL: [usize; 2] = [4_096, 1 << 19];

/// The progress of the rows, and the spends that they do not include yet. All spends in the tail are from
/// this process.
pub(crate) struct Fold {
    progress: Progress,
    workspaces: FxHashMap<i64, WorkspaceCredits>,
    /// Spends that are being added to the rows: those up to `progress.next`.
    moving: Counts,
    /// Spends after `progress.next`, the number of their workspaces, and the newest one.
    tail: Vec<(UsageKey, Count)>,
    tail_workspaces: usize,
    newest: LookupId,
    bounds: [usize; 2],
}

type Counts = BTreeMap<UsageKey, Count>;

/// The spends that the rows include: up to `all`, or up to `next` for workspaces up to `row`.
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

/// Credits of a workspace.
#[derive(Default)]
struct WorkspaceCredits {
    /// Those that can still be spent.
    unspent: i64,
    /// Those that are spent in the tail.
    tail: i64,
}

/// Changes made by one transaction. [`Fold::apply`] applies them after the commit.
pub(crate) struct Change {
    progress: Progress,
    /// The number of counts in `moving` that were added to the rows.
    moved: usize,
    workspaces: BTreeMap<i64, Amounts>,
    /// Spends that are older than the progress of their rows. They are added to the rows at once.
    late: Counts,
    moving: Counts,
    tail: Vec<(UsageKey, Count)>,
    newest: LookupId,
}

/// Credits of one workspace in a change.
#[derive(Default)]
struct Amounts {
    total: i64,
    tail: i64,
    /// Unspent credits before these changes.
    unspent: i64,
}

impl Change {
    fn new(progress: Progress) -> Self {
        Self {
            progress,
            moved: 0,
            workspaces: BTreeMap::new(),
            late: Counts::new(),
            moving: Counts::new(),
            tail: Vec::new(),
            newest: progress.next,
        }
    }

    /// Records a new spend.
    pub(crate) fn add(&mut self, lookup: &BilledLookup) {
        let (key, count) = (UsageKey::of(lookup), Count::of(lookup));
        let amounts = self.workspaces.entry(key.workspace).or_default();
        amounts.total += count.credits;
        if lookup.lookup_id <= self.progress.of(key.workspace) {
            self.late.entry(key).or_default().add(count);
        } else if lookup.lookup_id <= self.progress.next {
            self.moving.entry(key).or_default().add(count);
        } else {
            amounts.tail += count.credits;
            self.tail.push((key, count));
        }
        self.newest = self.newest.max(lookup.lookup_id);
    }
}

impl Fold {
    /// Reads the progress, and adds a tail left by an earlier process to the rows. A row that is read for the
    /// first time is therefore complete.
    ///
    /// Errors: a constraint violation if a workspace has spent more than it was granted.
    pub(crate) fn open(db: &mut Connection) -> Result<Self, SqliteError> {
        Self::open_with(TAIL, db)
    }

    fn open_with(bounds: [usize; 2], db: &mut Connection) -> Result<Self, SqliteError> {
        let tx = database::begin(db)?;
        let (all, next) = tx.query_row("SELECT lookup_id, next_id FROM counted_until", [], |row| {
            Ok((LookupId::from_bytes(row.get(0)?), LookupId::from_bytes(row.get(1)?)))
        })?;
        let select = "SELECT max(lookup_id) FROM credit_spend";
        let newest: Option<[u8; 16]> = tx.query_row(select, [], |row| row.get(0))?;
        let newest = newest.map_or(next, LookupId::from_bytes).max(next);
        let progress = Progress { all: newest, next: newest, row: 0 };
        if all < newest {
            tx.execute(
                "UPDATE workspace SET spent = spent + u.credits
                 FROM (SELECT workspace, sum(credits) AS credits FROM uncounted_usage GROUP BY workspace) AS u
                 WHERE u.workspace = workspace.rowid",
                [],
            )?;
            tx.execute(
                "INSERT INTO usage_day (day, workspace, key, outcome, lookups, credits)
                 SELECT day, workspace, key, ?, sum(lookups), sum(credits) FROM uncounted_usage GROUP BY 1, 2, 3
                 ON CONFLICT DO UPDATE SET lookups = lookups + excluded.lookups, credits = credits + excluded.credits",
                [BILLED],
            )?;
            write_progress(&tx, &progress)?;
            tx.commit()?;
        }
        Ok(Self {
            progress,
            workspaces: FxHashMap::default(),
            moving: Counts::new(),
            tail: Vec::new(),
            tail_workspaces: 0,
            newest,
            bounds,
        })
    }

    /// Starts a change. If the tail is being added to the rows, adds that of up to `workspaces_max`
    /// workspaces.
    pub(crate) fn advance(
        &mut self,
        tx: &Transaction<'_>,
        workspaces_max: usize,
    ) -> Result<Change, SqliteError> {
        let [min, max] = self.bounds;
        if self.moving.is_empty() && self.tail.len() >= (8 * self.tail_workspaces).clamp(min, max) {
            self.begin();
        }
        let mut change = Change::new(self.progress);
        let mut moving = self.moving.iter().peekable();
        for _ in 0..workspaces_max {
            let Some(workspace) = moving.peek().map(|(key, _)| key.workspace) else { break };
            let mut counts = Vec::new();
            while let Some(count) = moving.next_if(|(key, _)| key.workspace == workspace) {
                counts.push(count);
            }
            match add_spent(tx, workspace, counts.iter().map(|(_, count)| count.credits).sum()) {
                // The remaining rows wait. The views stay correct, and the next start reports the error.
                Err(error) if error.is_constraint() => break,
                added => added?,
            }
            add_billed(tx, counts.iter().copied())?;
            change.moved += counts.len();
            change.progress.row = workspace;
        }
        if change.moved > 0 {
            if change.moved == self.moving.len() {
                change.progress = Progress { all: self.progress.next, row: 0, ..self.progress };
            }
            write_progress(tx, &change.progress)?;
        }
        Ok(change)
    }

    /// Starts adding the tail to the rows.
    fn begin(&mut self) {
        // In order, each entry of the map is close to the one before it.
        self.tail.sort_unstable_by_key(|(key, _)| *key);
        for (key, count) in self.tail.drain(..) {
            self.moving.entry(key).or_default().add(count);
        }
        self.workspaces.values_mut().for_each(|workspace| workspace.tail = 0);
        self.tail_workspaces = 0;
        self.progress.next = self.newest;
    }

    /// Checks the unspent credits of each workspace and adds late spends to the rows.
    ///
    /// Errors: [`AccountError::OverHold`] if a workspace would spend more than it was granted.
    pub(crate) fn write(&self, tx: &Transaction<'_>, change: &mut Change) -> Result<(), SqliteError> {
        for (workspace, amounts) in &mut change.workspaces {
            let known = self.workspaces.get(workspace).map(|workspace| workspace.unspent);
            // If the cached value is missing or too small, read it again: the workspace may have received a
            // grant.
            let known = known.filter(|unspent| *unspent >= amounts.total);
            amounts.unspent = known.map_or_else(|| self.unspent(tx, *workspace, &change.progress), Ok)?;
            if amounts.total > amounts.unspent {
                return Err(AccountError::OverHold.into());
            }
        }
        for (key, count) in &change.late {
            add_spent(tx, key.workspace, count.credits)?;
        }
        add_billed(tx, &change.late)
    }

    fn unspent(&self, tx: &Transaction<'_>, workspace: i64, progress: &Progress) -> Result<i64, SqliteError> {
        let select = "SELECT granted - spent FROM workspace WHERE rowid = ?";
        let unspent: i64 = tx.prepare_cached(select)?.query_row([workspace], |row| row.get(0))?;
        let is_moved = progress.of(workspace) == progress.next;
        let moving = self.moving.range(UsageKey::first_of(workspace)..UsageKey::first_of(workspace + 1));
        let moving: i64 = if is_moved { 0 } else { moving.map(|(_, count)| count.credits).sum() };
        Ok(unspent - moving - self.workspaces.get(&workspace).map_or(0, |workspace| workspace.tail))
    }

    /// Applies a change after its commit.
    pub(crate) fn apply(&mut self, change: Change) {
        self.progress = change.progress;
        for _ in 0..change.moved {
            self.moving.pop_first();
        }
        for (key, count) in change.moving {
            self.moving.entry(key).or_default().add(count);
        }
        for (workspace, amounts) in change.workspaces {
            let workspace = self.workspaces.entry(workspace).or_default();
            workspace.unspent = amounts.unspent - amounts.total;
            self.tail_workspaces += usize::from(workspace.tail == 0 && amounts.tail > 0);
            workspace.tail += amounts.tail;
        }
        self.tail.extend(change.tail);
        self.newest = self.newest.max(change.newest);
    }
}

fn add_spent(tx: &Transaction<'_>, workspace: i64, credits: i64) -> Result<(), SqliteError> {
    let update = "UPDATE workspace SET spent = spent + ? WHERE rowid = ?";
    tx.prepare_cached(update)?.execute([credits, workspace])?;
    Ok(())
}

fn add_billed<'c>(
    tx: &Transaction<'_>,
    counts: impl IntoIterator<Item = (&'c UsageKey, &'c Count)>,
) -> Result<(), SqliteError> {
    counts.into_iter().try_for_each(|(key, count)| usage::add(tx, key, BILLED, count))
}

fn write_progress(tx: &Transaction<'_>, progress: &Progress) -> Result<(), SqliteError> {
    let update = "UPDATE counted_until SET lookup_id = ?, next_id = ?, next_workspace = ?";
    tx.prepare_cached(update)?.execute(params![
        progress.all.as_bytes(),
        progress.next.as_bytes(),
        progress.row
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests;
