//! Usage by day, key and outcome.
//!
//! Billed lookups are counted from their spends. Updating `usage_day` with each commit would cost as much as
//! the spends themselves. Therefore the table lags behind: it includes the spends up to `usage_until`, and
//! this module keeps the counts of later ones in memory. Each tick adds them to the table and moves
//! `usage_until`, in one transaction. After a crash, the next process counts the spends after `usage_until`
//! again, so none is lost or counted twice.
//!
//! Free lookups leave no spend. They are counted in memory by a
//! [`UsageCounter`](enrich_store::usage::UsageCounter).

use std::collections::BTreeMap;

use enrich_lib::key::KeyId;
use enrich_lib::model::{LookupId, Timestamp};
use enrich_store::usage::{BILLED, Day, UsageCount};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::error::SqliteError;
use crate::files::database;

/// The billed lookups that `usage_day` does not include yet. All of them are from this process.
pub(crate) struct Usage {
    pending: Counts,
    /// The newest spend that `usage_day` includes.
    until: LookupId,
    /// The newest committed spend.
    newest: LookupId,
}

type Counts = BTreeMap<(Day, i64, KeyId), Count>;

/// A number of lookups and their credits.
#[derive(Clone, Copy, Default)]
struct Count {
    lookups: i64,
    credits: i64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.lookups += other.lookups;
        self.credits += other.credits;
    }
}

/// The lookup of a spend.
#[derive(Clone, Copy)]
pub(crate) struct BilledLookup {
    pub(crate) lookup_id: LookupId,
    /// The row of the workspace.
    pub(crate) workspace: i64,
    pub(crate) key: KeyId,
    /// When the lookup arrived.
    pub(crate) at: Timestamp,
    pub(crate) credits: u64,
}

/// Changes made by one transaction. [`Usage::apply`] applies them after the commit.
pub(crate) struct UsageChange {
    until: LookupId,
    newest: LookupId,
    /// Spends that are not newer than `until`. They are added to `usage_day` at once.
    late: Counts,
    pending: Counts,
}

impl UsageChange {
    /// Records a new spend.
    pub(crate) fn add(&mut self, lookup: &BilledLookup) {
        self.newest = self.newest.max(lookup.lookup_id);
        let counts = if lookup.lookup_id <= self.until { &mut self.late } else { &mut self.pending };
        let count = counts.entry((Day::of(lookup.at), lookup.workspace, lookup.key)).or_default();
        count.add(Count { lookups: 1, credits: lookup.credits.cast_signed() });
    }

    /// Adds late spends to `usage_day`.
    pub(crate) fn write(&self, tx: &Transaction<'_>) -> Result<(), SqliteError> {
        add_billed(tx, &self.late)
    }
}

impl Usage {
    /// Adds the spends that an earlier process did not count.
    pub(crate) fn open(db: &mut Connection) -> Result<Self, SqliteError> {
        let tx = database::begin(db)?;
        let until = tx.query_row("SELECT lookup_id FROM usage_until", [], |row| row.get(0))?;
        let until = LookupId::from_bytes(until);
        let newest: Option<[u8; 16]> =
            tx.query_row("SELECT max(lookup_id) FROM credit_spend", [], |row| row.get(0))?;
        let newest = newest.map_or(until, LookupId::from_bytes).max(until);
        if until < newest {
            // `WHERE true` separates the join from `ON CONFLICT`
            // (<https://sqlite.org/lang_upsert.html#parsing_ambiguity>).
            let add = "INSERT INTO usage_day (day, workspace, key, outcome, lookups, credits)
                 SELECT day, workspace, key, ?, lookups, credits FROM usage_in_tail WHERE true
                 ON CONFLICT DO UPDATE SET lookups = lookups + excluded.lookups, credits = credits + excluded.credits";
            tx.execute(add, [BILLED])?;
            write_until(&tx, newest)?;
            tx.commit()?;
        }
        Ok(Self { pending: Counts::new(), until: newest, newest })
    }

    /// Starts a change.
    pub(crate) fn change(&self) -> UsageChange {
        let Self { until, newest, .. } = *self;
        UsageChange { until, newest, late: Counts::new(), pending: Counts::new() }
    }

    /// Applies a change after its commit.
    pub(crate) fn apply(&mut self, change: UsageChange) {
        self.newest = change.newest;
        for (row, count) in change.pending {
            self.pending.entry(row).or_default().add(count);
        }
    }

    /// Returns whether there are spends that `usage_day` does not include.
    pub(crate) fn has_pending(&self) -> bool {
        self.until < self.newest
    }

    /// Adds the pending lookups to `usage_day`. Call [`Usage::flushed`] after the commit.
    pub(crate) fn flush(&self, tx: &Transaction<'_>) -> Result<(), SqliteError> {
        if self.has_pending() {
            add_billed(tx, &self.pending)?;
            write_until(tx, self.newest)?;
        }
        Ok(())
    }

    pub(crate) fn flushed(&mut self) {
        self.pending.clear();
        self.until = self.newest;
    }
}

fn add_billed(tx: &Transaction<'_>, counts: &Counts) -> Result<(), SqliteError> {
    for ((day, workspace, key), count) in counts {
        add(tx, *day, *workspace, *key, BILLED, *count)?;
    }
    Ok(())
}

fn add(
    tx: &Transaction<'_>,
    day: Day,
    workspace: i64,
    key: KeyId,
    outcome: &str,
    count: Count,
) -> Result<(), SqliteError> {
    let insert = "INSERT INTO usage_day (day, workspace, key, outcome, lookups, credits) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET lookups = lookups + excluded.lookups, credits = credits + excluded.credits";
    let row = params![day.number(), workspace, key.number(), outcome, count.lookups, count.credits];
    tx.prepare_cached(insert)?.execute(row)?;
    Ok(())
}

fn write_until(tx: &Transaction<'_>, until: LookupId) -> Result<(), SqliteError> {
    tx.prepare_cached("UPDATE usage_until SET lookup_id = ?")?.execute([until.as_bytes()])?;
    Ok(())
}

/// Adds free lookups to `usage_day`.
pub(crate) fn add_free(tx: &Transaction<'_>, day: Day, counts: &[UsageCount]) -> Result<(), SqliteError> {
    for UsageCount { workspace, key, outcome, lookups } in counts {
        let mut select = tx.prepare_cached("SELECT rowid FROM workspace WHERE id = ?")?;
        let Some(workspace) = select.query_row([workspace.as_str()], |row| row.get(0)).optional()? else {
            continue; // the key was found in another store
        };
        let count = Count { lookups: i64::try_from(*lookups).unwrap_or(i64::MAX), credits: 0 };
        add(tx, day, workspace, *key, outcome, count)?;
    }
    Ok(())
}
