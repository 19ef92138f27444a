//! A spend in the queue of the [`crate::writer`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use enrich_lib::credit::Hold;
use enrich_net::ReplySender;
use tokio::time::Instant;

use crate::error::PostgresError;
use crate::workspace::WorkspaceState;

/// A spend started by [`enrich_lib::credit::Account::begin_spend`].
pub(crate) struct Spend {
    pub(crate) state: Arc<WorkspaceState>,
    /// The row id of the workspace.
    pub(crate) rowid: i64,
    pub(crate) hold: Hold,
    pub(crate) credits: u64,
    pub(crate) reply: ReplySender<SpendResult>,
    pub(crate) queued_at: Instant,
    /// True if the spend was sent and may have been committed.
    pub(crate) is_ambiguous: bool,
    /// True if the lease could not pay for its spends of a batch. `charge` then settles the spend individually.
    pub(crate) is_late: bool,
    /// Counts the spend until it has a result.
    pub(crate) _pending: Pending,
}

/// Counts a pending spend until it is dropped.
pub(crate) struct Pending(Arc<AtomicU64>);

impl Pending {
    pub(crate) fn count(pending: &Arc<AtomicU64>) -> Self {
        pending.fetch_add(1, Ordering::Relaxed);
        Self(pending.clone())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The result of a spend.
pub(crate) type SpendResult = Result<(), PostgresError>;

impl Spend {
    /// Returns the row id of the workspace and the epoch, in lock order.
    pub(crate) fn lease(&self) -> (i64, i64) {
        (self.rowid, self.state.epoch)
    }

    /// Fails a spend that is not committed and never will be.
    pub(crate) fn fail(self, error: PostgresError) {
        self.state.lease().account.abort_spend(self.hold.lookup_id);
        self.reply.send(Err(error));
    }
}
