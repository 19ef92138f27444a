//! The sources of profiles: the people directory and the vendors of the settings file.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::OptOuts;
use enrich_metrics::VendorMetrics;
use enrich_sqlite::People;
use enrich_store::StoreError;
use enrich_vendors::middleware::{
    CachePolicy, Deadline, ResolverStack, StackMonitor, VendorPolicy, vendor_timeouts,
};
use enrich_vendors::provider::Provider;

/// The people, and the opt-outs that apply to all sources.
#[derive(Clone, Debug)]
pub enum PeopleSource {
    /// Both in the directory of this node.
    Directory(Arc<People>),
    /// Both in the database of all nodes.
    Database(Arc<enrich_postgres::People>),
}

impl PeopleSource {
    /// Fails if lookups cannot read the people or the opt-outs.
    pub fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Directory(people) => people.check().map_err(|error| StoreError::Backend(error.into())),
            Self::Database(people) => Ok(people.check()?),
        }
    }

    fn ports(&self) -> (Arc<dyn Resolver>, Arc<dyn OptOuts>) {
        match self {
            Self::Directory(people) => (people.clone(), people.clone()),
            Self::Database(people) => (people.clone(), people.clone()),
        }
    }
}

/// The sources that a lookup queries, with their shared settings.
#[derive(Clone, Debug)]
pub struct Sources {
    /// In the order in which they are queried; the first match wins. If empty, only the people directory is
    /// queried.
    pub list: Vec<Source>,
    /// Time budget for finding one person in all sources.
    pub deadline: Duration,
    /// Cache settings; `None` disables the cache. Not used if the people directory is the only source, which
    /// answers as fast.
    pub cache: Option<CachePolicy>,
}

/// A source of profiles.
#[derive(Clone, Debug)]
pub enum Source {
    /// The imported people directory.
    People,
    /// A vendor.
    Vendor(Vendor),
}

/// A vendor and the limits of its requests.
#[derive(Clone, Debug)]
pub struct Vendor {
    /// Sends the requests.
    pub provider: Arc<Provider>,
    /// The limits.
    pub policy: VendorPolicy,
}

impl Vendor {
    /// Returns the vendor with the limits of its description and default settings.
    pub fn new(provider: Provider) -> Self {
        let policy = provider.description().into();
        Self { provider: Arc::new(provider), policy }
    }

    /// Returns the vendor's name in the log.
    pub fn name(&self) -> &str {
        self.provider.description().name()
    }
}

impl Sources {
    /// The name of the people directory in the log and in the configuration.
    pub const PEOPLE: &str = People::NAME;

    /// Returns the people directory as the only source, with this time budget.
    pub const fn people(deadline: Duration) -> Self {
        Self { list: Vec::new(), deadline, cache: None }
    }

    /// Iterates over the vendors.
    pub fn vendors(&self) -> impl Iterator<Item = &Vendor> {
        self.list.iter().filter_map(|source| match source {
            Source::People => None,
            Source::Vendor(vendor) => Some(vendor),
        })
    }

    /// Returns the effective deadline of each vendor, which is shorter than its own if its share of the time is.
    pub fn vendor_deadlines(&self) -> Vec<Duration> {
        let policies = self.list.iter().map(|source| match source {
            Source::People => None,
            Source::Vendor(vendor) => Some(vendor.policy),
        });
        vendor_timeouts(self.deadline, &policies.collect::<Vec<_>>())
    }

    /// Builds one resolver from all sources, with an empty cache. Vendors with the limits that they had in `previous`
    /// keep their permits, and unchanged ones also their circuit breakers.
    ///
    /// People who opted out are never found, and no vendor receives a request for them. `metrics` counts the
    /// requests to vendors, and `seed` is random.
    pub(crate) fn resolver(
        &self,
        people: &PeopleSource,
        metrics: &VendorMetrics,
        seed: [u8; 32],
        previous: Option<(&Self, &StackMonitor)>,
    ) -> (Arc<dyn Resolver>, StackMonitor) {
        let (people, opt_outs) = people.ports();
        if self.vendors().next().is_none() {
            return (Arc::new(Deadline::new(people, self.deadline)), StackMonitor::default());
        }
        let stack = ResolverStack::new(self.deadline, opt_outs);
        let stack = self.cache.into_iter().fold(stack, ResolverStack::cache);
        let stack = self.list.iter().fold(stack, |stack, source| match source {
            Source::People => stack.local(Self::PEOPLE, people.clone()),
            Source::Vendor(vendor) => {
                let provider = metrics.observe(vendor.name(), vendor.provider.clone());
                stack.vendor(vendor.name(), provider, vendor.policy)
            }
        });
        let stack = match previous {
            Some((sources, monitor)) => stack.continuing(monitor, |name| self.shares_vendor(sources, name)),
            None => stack,
        };
        stack.build_with_monitor(seed)
    }

    /// Returns whether both have the same vendor of this name.
    fn shares_vendor(&self, other: &Self, name: &str) -> bool {
        let of_name = |sources: &Self| {
            sources.vendors().find(|vendor| vendor.name() == name).map(|vendor| vendor.provider.clone())
        };
        of_name(self).zip(of_name(other)).is_some_and(|(a, b)| a.is_same(&b))
    }
}
