//! What a node does about a vendor that fails: resolvers around resolvers, as an operator's settings make them.

use std::sync::Arc;
use std::time::Duration;

use enrich_compose::{Breaker, BreakerPolicy, Deadline, Limit, Retry, RetryPolicy, Waterfall};
use enrich_lib::ports::Resolver;

/// A waterfall, with times that fit into a run. What remembers people is left out, as no two requests of a run ask for
/// the same one.
#[derive(Clone, Debug)]
pub(crate) struct Guards {
    pub(crate) seed: u64,
}

impl Guards {
    const BUDGET: Duration = Duration::from_millis(9_900);
    const VENDOR_BUDGET: Duration = Duration::from_secs(4);
    const CONCURRENT_MAX: usize = 2;
    const QUEUE_MAX: usize = 1;

    /// Asks `vendor`, and if it fails, asks it once more under another name.
    pub(crate) fn resolver(&self, vendor: &Arc<dyn Resolver>) -> Arc<dyn Resolver> {
        let first = Waterfall::starting_with("first", self.guarded(vendor, 1));
        Arc::new(first.then("second", self.guarded(vendor, 2)).within(Self::BUDGET))
    }

    fn guarded(&self, vendor: &Arc<dyn Resolver>, nth: u64) -> Arc<dyn Resolver> {
        let vendor = Arc::new(Limit::new(vendor.clone(), Self::CONCURRENT_MAX, Self::QUEUE_MAX));
        let policy = RetryPolicy { budget: Self::VENDOR_BUDGET, ..RetryPolicy::default() };
        let vendor = Arc::new(Retry::new(vendor, policy, self.seed ^ nth));
        let vendor = Arc::new(Deadline::new(vendor, Self::VENDOR_BUDGET));
        // Few calls, and a pause that is over when all is healed.
        let policy = BreakerPolicy {
            window_calls: 4,
            calls_min: 2,
            pause: Duration::from_millis(500),
            ..BreakerPolicy::default()
        };
        Arc::new(Breaker::new(vendor, policy))
    }
}
