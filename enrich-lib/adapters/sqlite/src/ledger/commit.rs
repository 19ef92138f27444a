//! Transactions of spends, and the outcomes of a commit.

use enrich_lib::credit::{AccountError, Settlement};
use rusqlite::{Connection, Transaction, ffi};
use thiserror::Error;

use super::fold::Fold;
use super::rows::{self, ROWS};
use super::shared::spent;
use super::spend::BegunSpend;
use super::usage::BilledLookup;
use crate::error::SqliteError;
use crate::files::database::begin;
use crate::files::wal;

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
    tx.commit().map_err(|error| match error.sqlite_error().map(|error| error.extended_code) {
        Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC) => CommitError::SyncFailed(error),
        _ => CommitError::InDoubt(error),
    })
}

/// Ensures that recovery does not find the commit that failed before. Otherwise fails.
pub(crate) fn discard_failed_commit(db: &mut Connection) -> Result<(), CommitError> {
    let overwritten = overwrite_failed_commit(db);
    if let Err(CommitError::Rejected(_) | CommitError::InDoubt(_)) = overwritten
        && wal::ends_at_last_commit(db).unwrap_or(false)
    {
        // On a full disk, not even the first frame was written.
        return Ok(());
    }
    overwritten
}

/// Overwrites the first frame that a failed commit may have left in the write-ahead log. The checksum of each
/// frame includes the frames before it, so that recovery ignores the rest.
fn overwrite_failed_commit(db: &mut Connection) -> Result<(), CommitError> {
    let tx = begin(db)?;
    // SQLite does not write a page whose content stays the same.
    tx.prepare_cached("UPDATE failed_commits SET overwritten = overwritten + 1")?.execute([])?;
    commit(tx)
}

/// The index of a spend of a lookup that has a spend already, and the result of its settlement.
pub(crate) type Repeated = (usize, Result<(), AccountError>);

/// Writes spends, the totals of their workspaces and their usage.
pub(crate) struct SpendTable {
    fold: Fold,
}

impl SpendTable {
    pub(crate) fn open(db: &mut Connection) -> Result<Self, SqliteError> {
        Ok(Self { fold: Fold::open(db)? })
    }

    /// Writes spends in one transaction, except those of lookups that have a spend already. Returns the
    /// latter, in order.
    pub(crate) fn write(
        &mut self,
        db: &mut Connection,
        spends: &[BegunSpend],
    ) -> Result<Vec<Repeated>, CommitError> {
        if let Some(repeated) = self.write_rows(db, spends, ROWS)? {
            return Ok(repeated);
        }
        // A multi-row statement does not report which of its rows existed already.
        Ok(self.write_rows(db, spends, 1)?.unwrap_or_default())
    }

    /// Returns `None`, without writing anything, if a multi-row statement includes a lookup that has a spend
    /// already.
    fn write_rows(
        &mut self,
        db: &mut Connection,
        spends: &[BegunSpend],
        rows: usize,
    ) -> Result<Option<Vec<Repeated>>, CommitError> {
        let tx = begin(db)?;
        let mut change = self.fold.advance(&tx, spends.len())?;
        let mut repeated = Vec::new();
        let many = spends.chunks_exact(rows);
        let rest = many.remainder().chunks(1);
        let mut index = 0;
        for spends in many.chain(rest) {
            let new = rows::insert_spends(&tx, spends)?;
            if new < spends.len() && spends.len() > 1 {
                return Ok(None);
            }
            for spend in &spends[new..] {
                let BilledLookup { lookup_id, workspace, credits, .. } = *spend.lookup();
                let spent = spent(&tx, workspace, lookup_id)?;
                repeated.push((index, Settlement::Spend(credits).without_hold(spent)));
            }
            spends[..new].iter().for_each(|spend| change.add(spend.lookup()));
            index += spends.len();
        }
        self.fold.write(&tx, &mut change)?;
        commit(tx)?;
        self.fold.apply(change);
        Ok(Some(repeated))
    }
}
