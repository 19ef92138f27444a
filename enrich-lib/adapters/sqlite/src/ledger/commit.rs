//! Transactions of spends, and the outcomes of a commit.

use std::collections::BTreeMap;

use enrich_lib::credit::{AccountError, Settlement};
use enrich_lib::model::LookupId;
use enrich_store::usage::BILLED;
use rusqlite::{Connection, Transaction};
use thiserror::Error;

use super::rows::{self, ROWS};
use super::shared::spent;
use super::spend::BegunSpend;
use super::usage::{self, BilledLookup, Count, UsageKey};
use crate::error::{SqliteError, is_sync_failure};
use crate::files::database::begin;

/// The reason why a transaction was not committed.
#[derive(Debug, Error)]
pub(crate) enum CommitError {
    /// Nothing was written.
    #[error(transparent)]
    Rejected(#[from] SqliteError),
    /// The commit failed before its sync. The write-ahead log may contain its frames, and a crash would then
    /// recover them. The next transaction that is committed overwrites them.
    #[error("{0}")]
    InDoubt(rusqlite::Error),
    /// The sync failed. The frames may be on the disk, may reach it later, or may never do so: an operating
    /// system reports a failed write only once, and may discard the data.
    #[error("{0}")]
    SyncFailed(rusqlite::Error),
}

impl From<rusqlite::Error> for CommitError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Rejected(error.into())
    }
}

impl From<CommitError> for SqliteError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Rejected(error) => error,
            CommitError::InDoubt(error) => error.into(),
            CommitError::SyncFailed(error) => Self::SyncFailed(error.to_string()),
        }
    }
}

/// Commits a transaction.
pub(crate) fn commit(tx: Transaction<'_>) -> Result<(), CommitError> {
    tx.commit().map_err(|error| match is_sync_failure(&error) {
        true => CommitError::SyncFailed(error),
        false => CommitError::InDoubt(error),
    })
}

/// Overwrites the first frame that a failed commit may have left in the write-ahead log. The checksum of each
/// frame includes the frames before it, so that recovery ignores the rest.
pub(crate) fn overwrite_failed_commit(db: &mut Connection) -> Result<(), CommitError> {
    let tx = begin(db)?;
    // SQLite does not write a page whose content stays the same.
    tx.prepare_cached("UPDATE failed_commits SET overwritten = overwritten + 1")?.execute([])?;
    commit(tx)
}

/// The index of a spend that is not written, and the result of its settlement: its lookup has a spend already, or
/// another one has paid for its receipt.
pub(crate) type Repeated = (usize, Result<Option<LookupId>, AccountError>);

/// Writes spends, their receipts, the totals of their workspaces and their usage in one transaction, except the
/// spends of lookups that have one already, or whose receipts others have paid for. Returns the latter, in order.
pub(crate) fn write_spends(
    db: &mut Connection,
    spends: &[BegunSpend],
    now_ms: i64,
) -> Result<Vec<Repeated>, CommitError> {
    if let Some(repeated) = write_rows(db, spends, now_ms, ROWS)? {
        return Ok(repeated);
    }
    // A multi-row statement does not report which of its rows existed already.
    Ok(write_rows(db, spends, now_ms, 1)?.unwrap_or_default())
}

/// Returns `None`, without writing anything, if a multi-row statement includes a lookup that has a spend
/// already.
fn write_rows(
    db: &mut Connection,
    spends: &[BegunSpend],
    now_ms: i64,
    rows: usize,
) -> Result<Option<Vec<Repeated>>, CommitError> {
    let tx = begin(db)?;
    let (mut totals, mut repeated) = (Totals::default(), Vec::new());
    let mut paying = Vec::with_capacity(spends.len());
    for (index, spend) in spends.iter().enumerate() {
        let lookup = spend.lookup();
        let insert = |receipt| rows::insert_receipt(&tx, lookup, receipt, now_ms);
        match lookup.receipt.map(insert).transpose()?.flatten() {
            Some(payer) if payer != lookup.lookup_id => repeated.push((index, Ok(Some(payer)))),
            _ => paying.push((index, spend)),
        }
    }
    let many = paying.chunks_exact(rows);
    let rest = many.remainder().chunks(1);
    for paying in many.chain(rest) {
        let spends: Vec<_> = paying.iter().map(|(_, spend)| *spend).collect();
        let new = rows::insert_spends(&tx, &spends)?;
        if new < spends.len() && spends.len() > 1 {
            return Ok(None);
        }
        for (index, spend) in &paying[new..] {
            let BilledLookup { lookup_id, workspace, credits, .. } = *spend.lookup();
            let spent = spent(&tx, workspace, lookup_id)?;
            repeated.push((*index, Settlement::Spend(credits).without_hold(spent).map(|()| None)));
        }
        spends[..new].iter().for_each(|spend| totals.add(spend.lookup()));
    }
    repeated.sort_unstable_by_key(|(index, _)| *index);
    totals.write(&tx)?;
    commit(tx)?;
    Ok(Some(repeated))
}

/// The sums of new spends, in the order of their rows, so that rows of one page are updated together.
#[derive(Default)]
struct Totals {
    credits: BTreeMap<i64, i64>,
    usage: BTreeMap<UsageKey, Count>,
}

impl Totals {
    fn add(&mut self, lookup: &BilledLookup) {
        let credits = lookup.credits.cast_signed();
        *self.credits.entry(lookup.workspace).or_default() += credits;
        let count = self.usage.entry(UsageKey::of(lookup)).or_default();
        count.lookups += 1;
        count.credits += credits;
    }

    /// Adds the sums to the rows.
    ///
    /// Errors: [`AccountError::Withdrawn`] if a workspace would spend more than it was granted.
    fn write(&self, tx: &Transaction<'_>) -> Result<(), SqliteError> {
        let mut update = tx.prepare_cached(
            "UPDATE workspace SET spent = spent + ?1 WHERE rowid = ?2 AND granted - spent >= ?1",
        )?;
        for (workspace, credits) in &self.credits {
            if update.execute([credits, workspace])? == 0 {
                return Err(AccountError::Withdrawn.into());
            }
        }
        self.usage.iter().try_for_each(|(key, count)| usage::add(tx, key, BILLED, count))
    }
}
