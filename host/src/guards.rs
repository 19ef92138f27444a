//! The resolvers of [`enrich_compose`], put together as its first page says: [`Guards`] around each vendor, [`Assembly`]
//! around all of them.

use std::sync::Arc;
use std::time::Duration;

use enrich_compose::{
    Breaker, BreakerPolicy, Cache, CachePolicy, Coalesce, Deadline, EmailHasher, Hedge, HedgeDelay, Limit,
    OptOuts, Permits, Retry, RetryPolicy, Suppress, VendorFault, Waterfall,
};
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;

use crate::causes::chain;

/// What guards a vendor from us, and us from a vendor.
#[derive(Clone, Copy, Debug)]
pub struct Guards {
    /// The vendor's time for one lookup, with all tries and the pauses between them. It starts when the lookup has a permit.
    pub deadline: Duration,
    /// The lookups that the vendor serves at once.
    pub concurrency: usize,
    /// The lookups that may wait for a permit.
    pub queue_max: usize,
    /// The time that a lookup may wait for a permit.
    pub wait_max: Duration,
    /// How often it is asked for one person, if its failures pass.
    pub tries: u32,
    /// When it is left alone for a while.
    pub breaker: BreakerPolicy,
    /// When a second ask is made, if one ever is: see [`Hedge`] for what that can cost.
    pub hedge: Option<Duration>,
}

impl Guards {
    /// Puts `vendor` behind a hedge, retries, a deadline, a breaker and a limit, from the inside out. `seed` makes the
    /// pauses between tries.
    pub fn around(self, vendor: Arc<dyn Resolver>, seed: u64) -> Arc<dyn Resolver> {
        let permits = Permits::new(self.concurrency, self.queue_max);
        let mut vendor = vendor;
        if let Some(delay) = self.hedge {
            let hedge = Hedge::where_asks_are_free(vendor, HedgeDelay::Fixed(delay));
            vendor = Arc::new(hedge.within(permits.clone()));
        }
        let policy = RetryPolicy { tries_max: self.tries, budget: self.deadline, ..RetryPolicy::default() };
        let vendor = Arc::new(Retry::new(vendor, policy, seed));
        let vendor = Arc::new(Breaker::new(Arc::new(Deadline::new(vendor, self.deadline)), self.breaker));
        Arc::new(Limit::new(vendor, permits, self.wait_max))
    }
}

/// All who are asked, as one resolver.
#[derive(Clone, Copy, Debug)]
pub struct Assembly {
    /// The budget of a whole lookup.
    pub deadline: Duration,
    /// What is remembered, if anything is.
    pub cache: Option<CachePolicy>,
}

impl Assembly {
    /// The part of the budget in which all are asked: it ends before the whole does, so that a failure names the vendors.
    pub fn budget(&self) -> Duration {
        self.deadline - (self.deadline / 20).min(Duration::from_millis(100))
    }

    /// From the inside out: one after the other · once at a time for one person · what is remembered · who opted out ·
    /// the budget. `key` is for the hashes of emails.
    pub fn around(&self, asked: Waterfall, opt_outs: Arc<dyn OptOuts>, key: [u8; 32]) -> Arc<dyn Resolver> {
        let hasher = EmailHasher::new(key);
        let waterfall = asked.within(self.budget()).on_failure(log);
        let once = Arc::new(Coalesce::new(Arc::new(waterfall), hasher.clone()));
        let remembered: Arc<dyn Resolver> = match self.cache {
            Some(policy) => Arc::new(Cache::new(once, hasher, policy)),
            None => once,
        };
        let suppressed = Arc::new(Suppress::new(remembered, opt_outs));
        Arc::new(Deadline::new(suppressed, self.deadline))
    }
}

/// Logs why a vendor did not answer a lookup. A vendor that was skipped is no warning, as an open breaker or a full queue
/// repeats itself for every lookup.
fn log(query: &Query, vendor: &str, error: &PortError) {
    let Query { lookup_id, workspace, .. } = query;
    let (workspace, error_text) = (workspace.as_str(), chain(error));
    if VendorFault::of(error).is_none_or(|fault| !fault.is_skipped()) {
        tracing::warn!(
            target: "enrich::vendor", vendor, %lookup_id, workspace, error = error_text, "vendor request failed",
        );
    } else {
        tracing::info!(
            target: "enrich::vendor", vendor, %lookup_id, workspace, error = error_text, "vendor skipped",
        );
    }
}
