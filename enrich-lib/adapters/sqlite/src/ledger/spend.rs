//! Spends on their way from a lookup to the writer.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::model::LookupId;
use enrich_store::StoreError;
use enrich_store::batch::{Replies, ReplySender};

use super::shared::{CachedAccount, Shared};
use super::usage::BilledLookup;
use crate::error::SqliteError;

/// The result of a job of the writer. For a spend, the other lookup that has paid for its receipt.
pub(crate) type JobResult = Result<Option<LookupId>, SqliteError>;

/// A spend that [`enrich_lib::credit::Account::begin_spend`] has begun.
pub(crate) struct Spend {
    pub(crate) state: Arc<CachedAccount>,
    pub(crate) lookup: BilledLookup,
    /// When it was queued, on the ledger's monotonic clock.
    pub(crate) queued_at: Duration,
}

impl Spend {
    /// Ends a spend that is not durable and never will be. A caller that receives the reply finds the credits
    /// available.
    pub(crate) fn abort(&self, shared: &Shared) {
        shared.account(&self.state).abort_spend(self.lookup.lookup_id);
    }
}

/// A spend that the writer has taken out of the queue. Dropping it leaves its caller without a reply, because
/// its outcome is unknown.
pub(crate) struct BegunSpend {
    spend: Spend,
    reply: ReplySender<JobResult>,
}

impl BegunSpend {
    pub(crate) fn new(spend: Spend, mut reply: ReplySender<JobResult>) -> Self {
        reply.begin();
        Self { spend, reply }
    }

    pub(crate) fn lookup(&self) -> &BilledLookup {
        &self.spend.lookup
    }

    /// Ends a spend that is durable. A caller that receives the reply finds the credits spent.
    pub(crate) fn succeed(self, shared: &Shared, replies: &mut Replies) {
        shared.account(&self.spend.state).commit_spend(self.spend.lookup.lookup_id);
        replies.add(self.reply, Ok(None));
    }

    /// Ends a spend that was not written: it failed, its lookup has a spend already, or another one has paid for its
    /// receipt.
    pub(crate) fn end_unspent(self, result: JobResult, shared: &Shared, replies: &mut Replies) {
        self.spend.abort(shared);
        replies.add(self.reply, result);
    }

    /// Ends a spend that failed for the reason `why`.
    pub(crate) fn fail(self, why: &str, shared: &Shared, replies: &mut Replies) {
        self.end_unspent(Err(StoreError::NotCommitted(why.to_owned()).into()), shared, replies);
    }
}
