//! Whom a lookup asks, in which order, and how it survives them: the resolvers of [`enrich_compose`], put together as its
//! first page says.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_compose::{
    Breaker, BreakerPolicy, Cache, CachePolicy, Coalesce, Deadline, EmailHasher, FaultKind, Hedge,
    HedgeDelay, Limit, OptOuts, Retry, RetryPolicy, Suppress, VendorFault, Waterfall,
};
use enrich_lib::email::Email;
use enrich_lib::ports::Resolver;
use enrich_lib::refusal::PortError;
use enrich_provider::Provider;
use enrich_sqlite::People;

use crate::causes::chain;

/// Whom a lookup asks.
#[derive(Clone, Debug)]
pub struct Vendors {
    /// In this order; the first trusted match wins. Nobody here is the people directory alone.
    pub asked: Vec<Asked>,
    /// The budget of a whole lookup.
    pub deadline: Duration,
    /// What is remembered, if anything is. The people directory alone never is: it answers as fast.
    pub cache: Option<CachePolicy>,
}

/// One of those who are asked.
#[derive(Clone, Debug)]
pub enum Asked {
    /// The imported directory.
    People,
    /// A vendor, and how it is asked.
    Vendor(Vendor),
}

/// A vendor, and how it is asked. How long, how often and how much at a time, its description says.
#[derive(Clone, Debug)]
pub struct Vendor {
    /// The vendor.
    pub provider: Arc<Provider>,
    /// The most lookups that wait while the vendor is asked as much as it may be.
    pub queue_max: usize,
    /// When the vendor is left alone for a while.
    pub breaker: BreakerPolicy,
    /// When a second ask is made, if one ever is: see [`Hedge`] for what that can cost.
    pub hedge: Option<Duration>,
}

impl Vendor {
    /// How many wait, unless the operator sets another number.
    pub const QUEUE_MAX: usize = 100;

    /// The vendor with the guards that it has by default.
    pub fn new(provider: Arc<Provider>) -> Self {
        Self { provider, queue_max: Self::QUEUE_MAX, breaker: BreakerPolicy::default(), hedge: None }
    }

    /// The name under which it is logged.
    pub fn name(&self) -> &str {
        self.provider.description().name()
    }

    /// From the inside out: no more than it takes · a second ask · a failure that passes · one that hangs · one that
    /// keeps failing.
    fn guarded(&self, budget: Duration) -> Arc<dyn Resolver> {
        let limits = self.provider.description().limits();
        // The queue and the pauses are within it: what a lookup waits for is all one to its client.
        let deadline = self.provider.description().deadline().min(budget);
        let mut vendor: Arc<dyn Resolver> =
            Arc::new(Limit::new(self.provider.clone(), limits.concurrency, self.queue_max));
        if let Some(delay) = self.hedge {
            vendor = Arc::new(Hedge::where_asks_are_free(vendor, HedgeDelay::Fixed(delay)));
        }
        let policy = RetryPolicy { tries_max: limits.tries, budget: deadline, ..RetryPolicy::default() };
        let vendor = Arc::new(Retry::new(vendor, policy, rand::random()));
        Arc::new(Breaker::new(Arc::new(Deadline::new(vendor, deadline)), self.breaker))
    }
}

impl Vendors {
    /// The name of the people directory in the log and among settings.
    pub const PEOPLE: &str = "people";

    /// The people directory alone, with this budget.
    pub const fn people(deadline: Duration) -> Self {
        Self { asked: Vec::new(), deadline, cache: None }
    }

    /// All of them as one resolver, with circuits that are closed and nothing remembered. Who opted out of `people` is
    /// found nowhere, and no vendor is asked about them.
    pub fn resolver(&self, people: &Arc<People>) -> Arc<dyn Resolver> {
        let mut asked = self.asked.iter();
        let resolver: Arc<dyn Resolver> = if asked.all(|asked| matches!(asked, Asked::People)) {
            people.clone()
        } else {
            self.suppressed(people)
        };
        Arc::new(Deadline::new(resolver, self.deadline))
    }

    fn suppressed(&self, people: &Arc<People>) -> Arc<dyn Resolver> {
        let hasher = EmailHasher::new(rand::random());
        let once = Arc::new(Coalesce::new(Arc::new(self.waterfall(people)), hasher.clone()));
        let remembered: Arc<dyn Resolver> = match self.cache {
            Some(policy) => Arc::new(Cache::new(once, hasher, policy)),
            None => once,
        };
        Arc::new(Suppress::new(remembered, Arc::new(SuppressedPeople(people.clone()))))
    }

    fn waterfall(&self, people: &Arc<People>) -> Waterfall {
        // It ends before the whole does, so that a failure names the vendors.
        let budget = self.deadline - (self.deadline / 20).min(Duration::from_millis(100));
        let mut asked = self.asked.iter().map(|asked| -> (&str, Arc<dyn Resolver>) {
            match asked {
                Asked::People => (Self::PEOPLE, people.clone()),
                Asked::Vendor(vendor) => (vendor.name(), vendor.guarded(budget)),
            }
        });
        let (name, resolver) = asked.next().unwrap_or((Self::PEOPLE, people.clone()));
        let first = Waterfall::starting_with(name, resolver);
        asked
            .fold(first, |waterfall, (name, resolver)| waterfall.then(name, resolver))
            .within(budget)
            .on_failure(log)
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

/// Those who opted out of the people directory.
struct SuppressedPeople(Arc<People>);

#[async_trait]
impl OptOuts for SuppressedPeople {
    /// Like [`People`]'s own look-up it does not leave the caller's thread.
    async fn contain(&self, email: &Email) -> Result<bool, PortError> {
        Ok(self.0.is_suppressed(email)?)
    }
}
