//! The vendors of a lookup, their order and their middleware.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::ports::Resolver;
use enrich_lib::refusal::PortError;
use enrich_middleware::{BreakerPolicy, CachePolicy, Deadline, OptOuts, Waterfall};
use enrich_provider::Provider;
use enrich_sqlite::People;

use crate::guards::{Guards, ResolverStack};

/// The configured vendors and their shared settings.
#[derive(Clone, Debug)]
pub struct Vendors {
    /// The sources in the order in which they are queried; the first trusted match wins. If empty, only the people directory
    /// is queried.
    pub asked: Vec<Asked>,
    /// Time budget of a whole lookup.
    pub deadline: Duration,
    /// Cache settings; `None` disables the cache. Not used if the people directory is the only source, which answers as
    /// fast.
    pub cache: Option<CachePolicy>,
}

/// A source of a lookup.
#[derive(Clone, Debug)]
pub enum Asked {
    /// The imported people directory.
    People,
    /// A vendor with its settings.
    Vendor(Vendor),
}

/// A vendor with its middleware settings. Its deadline, tries and concurrency are part of its description.
#[derive(Clone, Debug)]
pub struct Vendor {
    /// The vendor's client.
    pub provider: Arc<Provider>,
    /// Maximum number of lookups that wait while the vendor is at its concurrency limit.
    pub queue_max: usize,
    /// When the circuit breaker opens, and for how long.
    pub breaker: BreakerPolicy,
    /// Delay before a second, parallel request; `None` disables hedging. See [`Hedge`](enrich_middleware::Hedge) for its
    /// possible cost.
    pub hedge: Option<Duration>,
}

impl Vendor {
    /// The default of [`Vendor::queue_max`].
    pub const QUEUE_MAX: usize = 100;

    /// Returns the vendor with the default settings.
    pub fn new(provider: Arc<Provider>) -> Self {
        Self { provider, queue_max: Self::QUEUE_MAX, breaker: BreakerPolicy::default(), hedge: None }
    }

    /// Returns the vendor's name in the log.
    pub fn name(&self) -> &str {
        self.provider.description().name()
    }

    /// Wraps the vendor in its middleware, with `share` of a lookup's time budget.
    ///
    /// The vendor's deadline is shorter than the share, so that the circuit breaker counts a vendor that hangs. A lookup
    /// waits for a permit while the vendor's whole deadline still fits into the share, and at least for half of the share.
    fn guarded(&self, share: Duration) -> Arc<dyn Resolver> {
        let limits = self.provider.description().limits();
        let deadline = self.provider.description().deadline().min(share - share / 20);
        let guards = Guards {
            deadline,
            concurrency: limits.concurrency,
            queue_max: self.queue_max,
            wait_max: (share - deadline).max(share / 2),
            tries: limits.tries,
            breaker: self.breaker,
            hedge: self.hedge,
        };
        guards.around(self.provider.clone(), rand::random())
    }
}

impl Vendors {
    /// The name of the people directory in the log and in the configuration.
    pub const PEOPLE: &str = "people";

    /// Returns a configuration that queries only the people directory, with this time budget.
    pub const fn people(deadline: Duration) -> Self {
        Self { asked: Vec::new(), deadline, cache: None }
    }

    /// Builds one resolver from all sources, with closed circuit breakers and an empty cache.
    ///
    /// People who opted out of `people` are never found, and no vendor receives a request for them.
    pub fn resolver(&self, people: &Arc<People>) -> Arc<dyn Resolver> {
        if self.asked.iter().all(|asked| matches!(asked, Asked::People)) {
            return Arc::new(Deadline::new(people.clone(), self.deadline));
        }
        let assembly = ResolverStack { deadline: self.deadline, cache: self.cache };
        let opt_outs = Arc::new(SuppressedPeople(people.clone()));
        assembly.around(self.waterfall(people, assembly.budget()), opt_outs, rand::random())
    }

    fn waterfall(&self, people: &Arc<People>, budget: Duration) -> Waterfall {
        let mut left = budget;
        let turns = (1..=self.asked.len() as u32).rev();
        let mut asked = self.asked.iter().zip(turns).map(|(asked, turns)| -> (&str, Arc<dyn Resolver>) {
            match asked {
                // The directory answers immediately and leaves its share of the budget to the vendors after it.
                Asked::People => (Self::PEOPLE, people.clone()),
                Asked::Vendor(vendor) => {
                    let share = left / turns;
                    left -= share;
                    (vendor.name(), vendor.guarded(share))
                }
            }
        });
        let (name, resolver) = asked.next().unwrap_or((Self::PEOPLE, people.clone()));
        let first = Waterfall::starting_with(name, resolver);
        asked.fold(first, |waterfall, (name, resolver)| waterfall.then(name, resolver))
    }
}

/// The opt-out list of the people directory.
struct SuppressedPeople(Arc<People>);

#[async_trait]
impl OptOuts for SuppressedPeople {
    /// Runs on the caller's thread, as the lookup in [`People`] does.
    async fn contain(&self, email: &Email) -> Result<bool, PortError> {
        Ok(self.0.is_suppressed(email)?)
    }
}
