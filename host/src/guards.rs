//! The resolvers of [`enrich_compose`], put together as its first page says: [`Guards`] around each vendor, [`Assembly`]
//! around all of them.

use std::sync::Arc;
use std::time::Duration;

use enrich_compose::{
    Breaker, BreakerPolicy, Cache, CachePolicy, Coalesce, Deadline, EmailHasher, FaultKind, Hedge,
    HedgeDelay, Limit, OptOuts, Retry, RetryPolicy, Suppress, VendorFault, Waterfall,
};
use enrich_lib::ports::Resolver;
use enrich_lib::refusal::PortError;

use crate::causes::chain;

/// What guards a vendor from us, and us from a vendor.
#[derive(Clone, Copy, Debug)]
pub struct Guards {
    /// How long a lookup may take there: the queue and the pauses are within it, as what a lookup waits for is all one to
    /// its client.
    pub deadline: Duration,
    /// The most asks at a time.
    pub concurrency: usize,
    /// The most lookups that wait while it is asked as much as it may be.
    pub queue_max: usize,
    /// How often it is asked for one person, if its failures pass.
    pub tries: u32,
    /// When it is left alone for a while.
    pub breaker: BreakerPolicy,
    /// When a second ask is made, if one ever is: see [`Hedge`] for what that can cost.
    pub hedge: Option<Duration>,
}

impl Guards {
    /// From the inside out: no more than it takes · a second ask · a failure that passes · one that hangs · one that
    /// keeps failing. `seed` makes the pauses between tries.
    pub fn around(self, vendor: Arc<dyn Resolver>, seed: u64) -> Arc<dyn Resolver> {
        let mut vendor: Arc<dyn Resolver> = Arc::new(Limit::new(vendor, self.concurrency, self.queue_max));
        if let Some(delay) = self.hedge {
            vendor = Arc::new(Hedge::where_asks_are_free(vendor, HedgeDelay::Fixed(delay)));
        }
        let policy = RetryPolicy { tries_max: self.tries, budget: self.deadline, ..RetryPolicy::default() };
        let vendor = Arc::new(Retry::new(vendor, policy, seed));
        Arc::new(Breaker::new(Arc::new(Deadline::new(vendor, self.deadline)), self.breaker))
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

/// Tells of a vendor that was passed over. That one is not asked for a while is no news each time.
fn log(vendor: &str, error: &PortError) {
    let is_asked = VendorFault::of(error)
        .is_none_or(|fault| !matches!(fault.kind, FaultKind::BreakerOpen | FaultKind::QueueFull));
    let fault = chain(error);
    if is_asked {
        tracing::warn!(target: "enrich::vendor", vendor, fault, "passed over");
    } else {
        tracing::info!(target: "enrich::vendor", vendor, fault, "passed over");
    }
}
