//! The resolver middleware of a node, assembled as in the host, with timeouts that fit into a run.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_host::guards::{Guards, ResolverStack};
use enrich_lib::ports::Resolver;
use enrich_middleware::{BreakerPolicy, CachePolicy, Deadline, OptOuts, Waterfall};

const VENDOR_MIDDLEWARE: Guards = Guards {
    deadline: Duration::from_secs(4),
    concurrency: 2,
    queue_max: 1,
    wait_max: Duration::from_millis(2_500),
    tries: 3,
    // A run makes few calls, and the pause must be over when the run has healed.
    breaker: BreakerPolicy {
        window_calls: 4,
        calls_min: 2,
        failure_rate: 0.5,
        pause: Duration::from_millis(500),
        probes: 2,
    },
    // Longer than the vendor's latency without faults, and early enough for the second response to meet the deadline.
    hedge: Some(Duration::from_secs(2)),
};

/// The TTLs are short enough for entries to expire during a run. The capacity is small enough to cause evictions.
const CACHE: CachePolicy = CachePolicy {
    entries_max: NonZeroUsize::new(3).expect("not zero"),
    found_ttl: Duration::from_secs(2),
    not_found_ttl: Duration::from_secs(1),
};

const RESOLVER: ResolverStack = ResolverStack { deadline: Deadline::BUDGET, cache: Some(CACHE) };

/// Wraps `vendor` in the middleware. If it fails or finds no profile, the lookup tries it again under a second name.
pub(crate) fn with_middleware(
    vendor: &Arc<dyn Resolver>,
    opt_outs: Arc<dyn OptOuts>,
    seed: u64,
) -> Arc<dyn Resolver> {
    let contract = |number| VENDOR_MIDDLEWARE.around(vendor.clone(), seed ^ number);
    let contracts = Waterfall::starting_with("first", contract(1)).then("second", contract(2));
    RESOLVER.around(contracts, opt_outs, [7; 32])
}
