//! Keys and credits of the process that serves, with the work that keeps them current.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::model::WorkspaceId;
use enrich_lib::ports::{Credits, Keys};
use thiserror::Error;

use crate::clocks::Clocks;
use crate::error::StoreError;
use crate::statistics::LedgerStatistics;
use crate::usage::UsageCounter;

/// Keys and credits of the process that serves.
#[async_trait]
pub trait Ledger: Keys + Credits {
    /// Returns the name of the database, as metrics show it.
    fn database(&self) -> &'static str;

    /// Advances the ledger's time to `now`. On SQLite, also expires holds and applies changes by other processes,
    /// except those of keys, which `enrich_sqlite::Ledger::refresh_keys` applies. Call it at least four times a
    /// second. Cancel safe: a call that takes too long can be dropped and made again.
    async fn tick(&self, now: Clocks) -> Result<(), TickError>;

    /// Writes what lookups do not wait for, if ticks do not: usage, the rest of settlements, and the credits of expired
    /// holds. Call it about four times a second, apart from ticks. It may take seconds.
    async fn write_statistics(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Writes the rest of the state. Call it when no lookup is in flight: later holds may be granted, but their spends
    /// fail or never complete.
    async fn close(&self) -> Result<(), StoreError>;

    /// Fails if lookups could not be billed, or keys are refused: the disk fails, or the server is unreachable.
    fn check(&self) -> Result<(), StoreError>;

    /// Returns statistics for metrics.
    fn statistics(&self) -> LedgerStatistics;

    /// Returns the counter of free lookups, which receives each event. Ticks or
    /// [`Ledger::write_statistics`], and [`Ledger::close`] write the counts.
    fn usage(&self) -> &Arc<UsageCounter>;

    /// Returns the credits of a workspace.
    async fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, StoreError>;
}

/// Why a tick failed.
#[derive(Debug, Error)]
pub enum TickError {
    /// A later tick may succeed.
    #[error(transparent)]
    Transient(StoreError),
    /// The ledger no longer works. Close all connections without an answer and end the process: some lookups
    /// may or may not be billed, and only the next start determines it.
    #[error(transparent)]
    Fatal(StoreError),
}

impl fmt::Debug for dyn Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("database", &self.database()).finish_non_exhaustive()
    }
}
