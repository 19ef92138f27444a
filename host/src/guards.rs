//! Assembles the resolver middleware of [`enrich_middleware`] in the order that its crate documentation recommends: [`Guards`]
//! for each vendor, [`ResolverStack`] for the whole chain.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_middleware::{
    Breaker, BreakerPolicy, Cache, CachePolicy, Coalesce, Deadline, EmailHasher, Hedge, HedgeDelay, Limit,
    OptOuts, Permits, Retry, RetryPolicy, Suppress, VendorError, Waterfall,
};

use crate::causes::chain;

/// Middleware settings that protect a vendor from overload and lookups from a failing vendor.
#[derive(Clone, Copy, Debug)]
pub struct Guards {
    /// Time budget for one lookup at this vendor, including all tries and the pauses between them. It starts when the lookup
    /// acquires a permit.
    pub deadline: Duration,
    /// Maximum number of concurrent lookups at the vendor.
    pub concurrency: usize,
    /// Maximum number of lookups that wait for a permit.
    pub queue_max: usize,
    /// Maximum time that a lookup waits for a permit.
    pub wait_max: Duration,
    /// Maximum number of tries per lookup. Only transient failures are retried.
    pub tries: u32,
    /// When the circuit breaker opens, and for how long.
    pub breaker: BreakerPolicy,
    /// Delay before a second, parallel request to the vendor; `None` disables hedging. See [`Hedge`] for its possible cost.
    pub hedge: Option<Duration>,
}

impl Guards {
    /// Wraps `vendor` in a hedge, retries, a deadline, a circuit breaker and a concurrency limit, from the inside out.
    /// `seed` seeds the jitter of the pauses between tries.
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

/// Settings of the whole resolver chain.
#[derive(Clone, Copy, Debug)]
pub struct ResolverStack {
    /// Time budget of a whole lookup.
    pub deadline: Duration,
    /// Cache settings; `None` disables the cache.
    pub cache: Option<CachePolicy>,
}

impl ResolverStack {
    /// Returns the time budget of the waterfall. It ends before [`ResolverStack::deadline`], so that a failure can name the
    /// vendors that caused it.
    pub fn budget(&self) -> Duration {
        self.deadline - (self.deadline / 20).min(Duration::from_millis(100))
    }

    /// Wraps the waterfall, from the inside out, in request coalescing, the cache, the opt-out check and the deadline.
    ///
    /// `key` keys the hashes of emails.
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

/// Logs why a vendor did not answer a lookup. Skipped vendors are logged at info level, because an open breaker or a full
/// queue affects every lookup.
fn log(query: &Query, vendor: &str, error: &PortError) {
    let Query { lookup_id, workspace, .. } = query;
    let (workspace, error_text) = (workspace.as_str(), chain(error));
    if VendorError::of(error).is_none_or(|error| !error.is_skipped()) {
        tracing::warn!(
            target: "enrich::vendor", vendor, %lookup_id, workspace, error = error_text, "vendor request failed",
        );
    } else {
        tracing::info!(
            target: "enrich::vendor", vendor, %lookup_id, workspace, error = error_text, "vendor skipped",
        );
    }
}
