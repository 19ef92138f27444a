//! All middleware of a lookup, assembled in the order that the [documentation of the
//! module](super#order-of-composition) recommends.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{OptOuts, VendorError};
use enrich_store::EmailHasher;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::breaker::CircuitBreaker;
use super::cache::{Cache, CachePolicy, CacheStatistics};
use super::circuit::{BreakerState, CircuitBreakerPolicy};
use super::coalesce::Coalesce;
use super::deadline::Deadline;
use super::decoy::{Decoy, Durations, Timed, WithoutMatch};
use super::limit::ConcurrencyLimit;
use super::local_first::LocalFirst;
use super::opt_out_filter::OptOutFilter;
use super::permits::Permits;
use super::retry::{Retry, RetryPolicy};
use super::waterfall::Waterfall;

/// Middleware settings that protect a vendor from overload, and lookups from a failing vendor.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct VendorPolicy {
    /// Timeout of one lookup at this vendor, including all tries and the delays between them. It starts when
    /// the lookup acquires a permit. [`ResolverStack`] shortens it to fit the vendor's share of the lookup's
    /// deadline.
    pub timeout: Duration,
    /// Maximum number of concurrent requests to the vendor.
    pub concurrency: usize,
    /// Maximum number of lookups of one workspace that wait for a permit.
    pub queue_max: usize,
    /// Maximum number of tries per lookup. Only transient failures are retried.
    pub tries_max: u32,
    /// When the circuit breaker opens, and for how long.
    pub breaker: CircuitBreakerPolicy,
}

impl Default for VendorPolicy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(8),
            concurrency: 16,
            queue_max: 100,
            tries_max: 2,
            breaker: CircuitBreakerPolicy::default(),
        }
    }
}

impl VendorPolicy {
    fn timeout_within(&self, share: Duration) -> Duration {
        self.timeout.min(share - share / 20)
    }

    /// Wraps `vendor` in its middleware, with `share` of the lookup's deadline.
    ///
    /// The vendor's timeout is shorter than the share, so that the circuit breaker counts a vendor that
    /// hangs. A lookup waits for a permit while the vendor's whole timeout still fits into the share, and at
    /// least for half of the share. Also returns the resolver for people who opted out, with the same limits.
    fn wrap(
        self,
        vendor: Arc<dyn Resolver>,
        share: Duration,
        rng: &mut StdRng,
        previous: Option<&Previous>,
    ) -> (Arc<dyn Resolver>, Arc<dyn Resolver>, Guards) {
        let budget = self.timeout_within(share);
        let queue_timeout = (share - budget).max(share / 2);
        let policy = RetryPolicy { tries_max: self.tries_max, budget, ..RetryPolicy::default() };
        let vendor = Arc::new(Retry::new(vendor, policy, rng.random()));
        let vendor = Arc::new(Deadline::new(vendor, budget));
        let limits = |policy: Self| (policy.concurrency, policy.queue_max);
        let permits = previous.filter(|previous| limits(previous.guards.policy) == limits(self));
        let permits = permits.map(|previous| previous.guards.permits.clone());
        let permits = permits.unwrap_or_else(|| Permits::new(self.concurrency, self.queue_max));
        let previous = previous.filter(|previous| previous.is_unchanged && previous.guards.policy == self);
        let previous = previous.map(|previous| &previous.guards);
        let durations = previous.map(|previous| previous.durations.clone());
        let durations = durations.unwrap_or_else(|| Durations::new(rng.random()));
        let vendor = Arc::new(Timed::new(vendor, durations.clone()));
        let breaker = match previous {
            Some(previous) => previous.breaker.around(vendor),
            None => CircuitBreaker::new(vendor, self.breaker),
        };
        let breaker = Arc::new(breaker);
        let decoy = Arc::new(Decoy { breaker: breaker.clone(), durations: durations.clone() });
        let limited = |resolver| ConcurrencyLimit::new(resolver, permits.clone(), queue_timeout);
        let (vendor, decoy) = (Arc::new(limited(breaker.clone())), Arc::new(limited(decoy)));
        (vendor, decoy, Guards { policy: self, permits, breaker, durations })
    }
}

/// Builds one resolver from several sources and all middleware.
///
/// The sources are queried in the order in which they were added; the first match wins. People who opted out
/// are never found, and no vendor receives a request for them. Their lookups have the same limits as those of
/// unknown people, and take as long. Each failure of a source is logged with the target `enrich::vendor`, even
/// if a later source finds the person.
///
/// Concurrent lookups share calls, whose timers belong to the runtime that began them. Runtimes that share a stack
/// therefore end together.
#[derive(Clone, derive_more::Debug)]
pub struct ResolverStack {
    deadline: Duration,
    #[debug(skip)]
    opt_outs: Arc<dyn OptOuts>,
    cache: Option<CachePolicy>,
    #[debug("{:?}", sources.iter().map(|source| (&source.name, source.policy)).collect::<Vec<_>>())]
    sources: Vec<Source>,
    #[debug(skip)]
    previous: Vec<Previous>,
}

/// The limits on requests to a vendor, with their state.
#[derive(Clone)]
struct Guards {
    policy: VendorPolicy,
    permits: Arc<Permits>,
    breaker: Arc<CircuitBreaker>,
    durations: Arc<Durations>,
}

/// A vendor of another stack, which this one continues.
#[derive(Clone)]
struct Previous {
    name: String,
    guards: Guards,
    is_unchanged: bool,
}

#[derive(Clone)]
struct Source {
    name: String,
    resolver: Arc<dyn Resolver>,
    /// `None` for a local source.
    policy: Option<VendorPolicy>,
}

impl ResolverStack {
    /// Creates a stack without sources. `deadline` is the time budget for finding one person in all of them.
    pub fn new(deadline: Duration, opt_outs: Arc<dyn OptOuts>) -> Self {
        Self { deadline, opt_outs, cache: None, sources: Vec::new(), previous: Vec::new() }
    }

    /// Adds a source that answers immediately and needs no protection, such as a local directory. One that can
    /// hang needs a [`Deadline`] of its own, or it takes the time of the vendors.
    #[must_use]
    pub fn local(mut self, name: &str, resolver: Arc<dyn Resolver>) -> Self {
        self.sources.push(Source { name: name.to_owned(), resolver, policy: None });
        self
    }

    /// Adds a vendor with its middleware settings.
    #[must_use]
    pub fn vendor(mut self, name: &str, resolver: Arc<dyn Resolver>, policy: VendorPolicy) -> Self {
        self.sources.push(Source { name: name.to_owned(), resolver, policy: Some(policy) });
        self
    }

    /// Caches results, except those of local sources before the first vendor. The default is no cache.
    #[must_use]
    pub fn cache(self, policy: CachePolicy) -> Self {
        Self { cache: Some(policy), ..self }
    }

    /// Continues the permits of another stack for its vendors that keep their limits, so that lookups in flight count
    /// for both stacks, and the circuit breakers of those that `is_unchanged` and that keep their policy.
    #[must_use]
    pub fn continuing(mut self, previous: &StackMonitor, is_unchanged: impl Fn(&str) -> bool) -> Self {
        let vendors = previous.vendors.iter().cloned();
        let vendors =
            vendors.map(|(name, guards)| Previous { is_unchanged: is_unchanged(&name), name, guards });
        self.previous = vendors.collect();
        self
    }

    /// Builds the resolver, with closed circuit breakers, unless they are [continued](Self::continuing), and an
    /// empty cache.
    ///
    /// `seed` must be cryptographically secure random bytes. It keys the hashes of emails and seeds the
    /// jitter of retries.
    pub fn build(self, seed: [u8; 32]) -> Arc<dyn Resolver> {
        self.build_with_monitor(seed).0
    }

    /// Like [`ResolverStack::build`], and also returns a reader of the state of the middleware.
    pub fn build_with_monitor(self, seed: [u8; 32]) -> (Arc<dyn Resolver>, StackMonitor) {
        let mut rng = StdRng::from_seed(seed);
        let hasher = EmailHasher::new(rng.random());
        let locals = self.sources.iter().take_while(|source| source.policy.is_none()).count();
        let (locals, others) = self.sources.split_at(locals);
        let (local, local_decoy, _) = self.waterfalls(locals, &mut rng);
        let (waterfall, decoy, vendors) = self.waterfalls(others, &mut rng);
        let coalesced = |waterfall| Arc::new(Coalesce::new(Arc::new(waterfall), hasher.clone()));
        let mut stored: Arc<dyn Resolver> = coalesced(waterfall);
        let mut decoy: Arc<dyn Resolver> = coalesced(decoy);
        let cache = self.cache.map(|policy| Cache::new(stored.clone(), hasher.clone(), policy));
        if let Some(cache) = &cache {
            (stored, decoy) = (Arc::new(cache.clone()), Arc::new(cache.for_opted_out(decoy)));
        }
        let found = LocalFirst { local: Arc::new(local), stored };
        let mut filtered = OptOutFilter::new(Arc::new(found), self.opt_outs.clone());
        if !vendors.is_empty() {
            // Repeated and concurrent lookups of a person who opted out also take as long as those of an
            // unknown person, even if a local source has the person.
            let decoy = LocalFirst { local: Arc::new(local_decoy), stored: decoy };
            filtered = filtered.with_decoy(Arc::new(decoy));
        }
        (Arc::new(Deadline::new(Arc::new(filtered), self.deadline)), StackMonitor { vendors, cache })
    }

    /// Builds two waterfalls of some sources: one for lookups, and one without matches, for people who opted out.
    /// Both end before the deadline of the lookup, so that their errors can name the vendors that failed.
    fn waterfalls(
        &self,
        sources: &[Source],
        rng: &mut StdRng,
    ) -> (Waterfall, Waterfall, Vec<(String, Guards)>) {
        let empty = || Waterfall::new(budget(self.deadline), log_failure);
        let (mut waterfall, mut decoys) = (empty(), empty());
        let shares = shares(self.deadline, sources.iter().map(|source| source.policy.is_some()));
        let mut vendors = Vec::new();
        for (Source { name, resolver, policy }, share) in sources.iter().zip(shares) {
            let (resolver, decoy) = match policy {
                Some(policy) => {
                    let previous = self.previous.iter().find(|previous| previous.name == *name);
                    let (resolver, decoy, guards) = policy.wrap(resolver.clone(), share, rng, previous);
                    vendors.push((name.clone(), guards));
                    (resolver, decoy)
                }
                None => (resolver.clone(), Arc::new(WithoutMatch(resolver.clone())) as Arc<dyn Resolver>),
            };
            waterfall = waterfall.then(name, resolver);
            decoys = decoys.then(name, decoy);
        }
        (waterfall, decoys, vendors)
    }
}

/// Returns the time for all sources of a waterfall.
fn budget(deadline: Duration) -> Duration {
    deadline - (deadline / 20).min(Duration::from_millis(100))
}

/// Divides the budget equally among sources. A local source leaves its share to the sources after it.
fn shares(
    deadline: Duration,
    are_vendors: impl ExactSizeIterator<Item = bool>,
) -> impl Iterator<Item = Duration> {
    let (mut remaining, sources_left) = (budget(deadline), (1..=are_vendors.len() as u32).rev());
    are_vendors.zip(sources_left).map(move |(is_vendor, sources_left)| {
        let share = remaining / sources_left;
        remaining -= if is_vendor { share } else { Duration::ZERO };
        share
    })
}

/// Returns the effective timeout of each vendor of a [`ResolverStack`] with these sources. A local source has no policy.
pub fn vendor_timeouts(deadline: Duration, sources: &[Option<VendorPolicy>]) -> Vec<Duration> {
    let locals = sources.iter().take_while(|policy| policy.is_none()).count();
    let others = &sources[locals..];
    let shares = shares(deadline, others.iter().map(Option::is_some));
    others.iter().zip(shares).filter_map(|(policy, share)| Some((*policy)?.timeout_within(share))).collect()
}

/// Reads the state of the middleware of a stack, for metrics. Cheap to clone. The default reads nothing.
#[derive(Clone, derive_more::Debug, Default)]
#[debug("StackMonitor {{ .. }}")]
pub struct StackMonitor {
    /// By vendor, in the order of the stack.
    vendors: Vec<(String, Guards)>,
    cache: Option<Cache>,
}

impl StackMonitor {
    /// Iterates over the names of the vendors and the states of their circuit breakers.
    pub fn breakers(&self) -> impl Iterator<Item = (&str, BreakerState)> {
        self.vendors.iter().map(|(vendor, guards)| (vendor.as_str(), guards.breaker.state()))
    }

    /// Returns how the cache is used, if the stack has one.
    pub fn cache(&self) -> Option<CacheStatistics> {
        self.cache.as_ref().map(Cache::statistics)
    }
}

/// Logs the failure of a source. A skipped vendor is logged at info level, because an open circuit breaker or
/// a full queue affects every lookup.
fn log_failure(query: &Query, vendor: &str, error: &PortError) {
    let Query { lookup_id, workspace, .. } = query;
    let (workspace, is_skipped) =
        (workspace.as_str(), VendorError::find_in(error).is_some_and(|e| e.is_skipped()));
    let error = format!("{error:#}");
    if is_skipped {
        tracing::info!(target: "enrich::vendor", vendor, %lookup_id, workspace, error, "vendor skipped");
    } else {
        tracing::warn!(target: "enrich::vendor", vendor, %lookup_id, workspace, error, "vendor request failed");
    }
}
