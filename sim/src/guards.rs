//! What a node does about a vendor that fails, and about asking it too much: the host's own assembly, with times that fit
//! into a run.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_compose::{BreakerPolicy, CachePolicy, Deadline, OptOuts, Waterfall};
use enrich_host::guards::{Assembly, Guards};
use enrich_lib::ports::Resolver;

const VENDOR: Guards = Guards {
    deadline: Duration::from_secs(4),
    concurrency: 2,
    queue_max: 1,
    wait_max: Duration::from_millis(2_500),
    tries: 3,
    // Few calls, and a pause that is over when all is healed.
    breaker: BreakerPolicy {
        window_calls: 4,
        calls_min: 2,
        failure_rate: 0.5,
        pause: Duration::from_millis(500),
        probes: 2,
    },
    // Longer than the vendor takes while nothing is wrong, and early enough for a second answer within the deadline.
    hedge: Some(Duration::from_secs(2)),
};

/// So short that a run sees answers remembered and forgotten, and so few that some make room.
const CACHE: CachePolicy = CachePolicy {
    entries_max: NonZeroUsize::new(3).expect("not zero"),
    found_ttl: Duration::from_secs(2),
    not_found_ttl: Duration::from_secs(1),
};

const ASSEMBLY: Assembly = Assembly { deadline: Deadline::BUDGET, cache: Some(CACHE) };

/// Asks `vendor`, and if it fails or knows nobody, asks it once more under another name.
pub(crate) fn guarded(
    vendor: &Arc<dyn Resolver>,
    opt_outs: Arc<dyn OptOuts>,
    seed: u64,
) -> Arc<dyn Resolver> {
    let nth = |nth| VENDOR.around(vendor.clone(), seed ^ nth);
    let twice = Waterfall::starting_with("first", nth(1)).then("second", nth(2));
    ASSEMBLY.around(twice, opt_outs, [7; 32])
}
