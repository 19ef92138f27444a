//! Usage by day, key and outcome.
//!
//! Billed lookups are counted in the transaction of their spends. Free lookups leave no spend. They are counted
//! in memory by a [`UsageCounter`](enrich_store::usage::UsageCounter), and each tick adds them to `usage_day`.

use enrich_lib::key::KeyId;
use enrich_lib::model::{LookupId, Timestamp};
use enrich_lib::receipt::Receipt;
use enrich_store::usage::{Day, UsageCount};
use rusqlite::{OptionalExtension, Transaction, params};

use crate::error::SqliteError;

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
    pub(crate) receipt: Option<Receipt>,
}

/// A row of usage without its outcome, ordered as the table is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UsageKey {
    day: Day,
    workspace: i64,
    key: KeyId,
}

impl UsageKey {
    pub(crate) fn of(lookup: &BilledLookup) -> Self {
        Self { day: Day::from_timestamp(lookup.at), workspace: lookup.workspace, key: lookup.key }
    }
}

/// A number of lookups and their credits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) lookups: i64,
    pub(crate) credits: i64,
}

/// Adds lookups to `usage_day`.
pub(crate) fn add(
    tx: &Transaction<'_>,
    key: &UsageKey,
    outcome: &str,
    count: &Count,
) -> Result<(), SqliteError> {
    let insert = "INSERT INTO usage_day (day, workspace, key, outcome, lookups, credits) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT DO UPDATE SET lookups = lookups + excluded.lookups, credits = credits + excluded.credits";
    let row =
        params![key.day.number(), key.workspace, key.key.number(), outcome, count.lookups, count.credits];
    tx.prepare_cached(insert)?.execute(row)?;
    Ok(())
}

/// Adds free lookups to `usage_day`.
pub(crate) fn add_free(tx: &Transaction<'_>, counts: &[UsageCount]) -> Result<(), SqliteError> {
    for UsageCount { day, workspace, key, outcome, lookups } in counts {
        let mut select = tx.prepare_cached("SELECT rowid FROM workspace WHERE id = ?")?;
        let Some(workspace) = select.query_row([workspace.as_str()], |row| row.get(0)).optional()? else {
            continue; // the key was found in another store
        };
        let count = Count { lookups: i64::try_from(*lookups).unwrap_or(i64::MAX), credits: 0 };
        add(tx, &UsageKey { day: *day, workspace, key: *key }, outcome, &count)?;
    }
    Ok(())
}
