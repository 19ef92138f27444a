//! The resolver middleware of a node, assembled as in the host, with timeouts that fit into a run.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::OptOuts;
use enrich_middleware::{CachePolicy, CircuitBreakerPolicy, Deadline, ResolverStack, VendorPolicy};

const VENDOR: VendorPolicy = VendorPolicy {
    timeout: Duration::from_secs(4),
    concurrency: 2,
    queue_max: 1,
    tries_max: 3,
    // A run makes few calls, and the pause must be over when the run has healed.
    breaker: CircuitBreakerPolicy {
        window_calls: 4,
        calls_min: 2,
        failure_rate: 0.5,
        pause: Duration::from_millis(500),
        probes: 2,
    },
    // Longer than the vendor's latency without faults, and early enough for the second response to meet the deadline.
    hedge_delay: Some(Duration::from_secs(2)),
};

/// The TTLs are short enough for entries to expire during a run. The capacity is small enough to cause evictions.
const CACHE: CachePolicy = CachePolicy {
    entries_max: NonZeroUsize::new(3).expect("not zero"),
    found_ttl: Duration::from_secs(2),
    not_found_ttl: Duration::from_secs(1),
};

/// Wraps `vendor` in the middleware. If it fails or finds no profile, the lookup tries it again under a second name.
pub(crate) fn with_middleware(
    vendor: &Arc<dyn Resolver>,
    opt_outs: Arc<dyn OptOuts>,
    seed: u64,
) -> Arc<dyn Resolver> {
    let mut seed_bytes = [7; 32];
    seed_bytes[..8].copy_from_slice(&seed.to_be_bytes());
    ResolverStack::new(Deadline::BUDGET, opt_outs)
        .vendor("first", vendor.clone(), VENDOR)
        .vendor("second", vendor.clone(), VENDOR)
        .cache(CACHE)
        .build(seed_bytes)
}
