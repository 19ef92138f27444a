//! Whom a lookup asks, in which order, and how it survives them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_compose::{BreakerPolicy, CachePolicy, Deadline, OptOuts, Waterfall};
use enrich_lib::email::Email;
use enrich_lib::ports::Resolver;
use enrich_lib::refusal::PortError;
use enrich_provider::Provider;
use enrich_sqlite::People;

use crate::guards::{Assembly, Guards};

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
    /// When a second ask is made, if one ever is: see [`Hedge`](enrich_compose::Hedge) for what that can cost.
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

    /// The vendor behind its guards, with `share` of a lookup's time.
    ///
    /// The vendor's own deadline ends before the share does: its breaker notices a vendor that hangs by that. A lookup
    /// waits for a permit as long as the whole deadline is left to the vendor, and at least half of the share.
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
    /// The name of the people directory in the log and among settings.
    pub const PEOPLE: &str = "people";

    /// The people directory alone, with this budget.
    pub const fn people(deadline: Duration) -> Self {
        Self { asked: Vec::new(), deadline, cache: None }
    }

    /// All of them as one resolver, with circuits that are closed and nothing remembered. Who opted out of `people` is
    /// found nowhere, and no vendor is asked about them.
    pub fn resolver(&self, people: &Arc<People>) -> Arc<dyn Resolver> {
        if self.asked.iter().all(|asked| matches!(asked, Asked::People)) {
            return Arc::new(Deadline::new(people.clone(), self.deadline));
        }
        let assembly = Assembly { deadline: self.deadline, cache: self.cache };
        let opt_outs = Arc::new(SuppressedPeople(people.clone()));
        assembly.around(self.waterfall(people, assembly.budget()), opt_outs, rand::random())
    }

    fn waterfall(&self, people: &Arc<People>, budget: Duration) -> Waterfall {
        let mut left = budget;
        let turns = (1..=self.asked.len() as u32).rev();
        let mut asked = self.asked.iter().zip(turns).map(|(asked, turns)| -> (&str, Arc<dyn Resolver>) {
            match asked {
                // It answers at once, and leaves its share to the vendors after it.
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

/// Those who opted out of the people directory.
struct SuppressedPeople(Arc<People>);

#[async_trait]
impl OptOuts for SuppressedPeople {
    /// Like [`People`]'s own look-up it does not leave the caller's thread.
    async fn contain(&self, email: &Email) -> Result<bool, PortError> {
        Ok(self.0.is_suppressed(email)?)
    }
}
