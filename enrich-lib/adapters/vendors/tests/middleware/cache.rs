//! The cache of answers: their TTL and the eviction of addresses.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{Cache, CachePolicy, CacheStatistics, EmailHasher, Waterfall};
use tokio::time::sleep;

use crate::scripted::{Vendor, ada, fails, finds, found, look_up, no_match, query};

const FOUND_TTL: Duration = Duration::from_secs(3_600);
const NOT_FOUND_TTL: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn cache(vendor: Arc<dyn Resolver>, entries_max: usize, found_ttl: Duration) -> Cache {
    let entries_max = NonZeroUsize::new(entries_max).expect("not zero");
    let policy = CachePolicy { entries_max, found_ttl, not_found_ttl: NOT_FOUND_TTL };
    Cache::new(vendor, EmailHasher::new([7; 16]), policy)
}

#[tokio::test(start_paused = true)]
async fn caches_each_answer_until_its_ttl_ends() {
    for (first, ttl) in [(finds("ada"), FOUND_TTL), (no_match(), NOT_FOUND_TTL)] {
        let vendor = Vendor::scripted([fails(VendorErrorKind::Unavailable), first], finds("ada-now"));
        let waterfall = Waterfall::new(Duration::from_secs(8), |_, _, _| {}).then("alpha", vendor.clone());
        let cache = cache(Arc::new(waterfall), 10, FOUND_TTL);
        cache.find(&ada()).await.unwrap_err();
        let mut answer = cache.find(&ada()).await.unwrap();
        assert_eq!((answer.is_cached, answer.source.is_some()), (false, answer.profile.is_some()));
        sleep(ttl - MS).await;
        answer.is_cached = true;
        assert_eq!(cache.find(&ada()).await.unwrap(), answer);
        sleep(MS).await;
        assert_eq!((look_up(&cache).await, vendor.calls()), (found("ada-now"), 3));
        let CacheStatistics { hits, misses, entries, .. } = cache.statistics();
        assert_eq!((hits, misses, entries), (1, 3, 1));
    }
}

/// Upper case is the same address for a vendor, and a dot is not.
#[tokio::test(start_paused = true)]
async fn evicts_least_recently_used_address() {
    let vendor = Vendor::new(finds("someone"));
    let cache = cache(vendor.clone(), 2, FOUND_TTL);
    for (name, calls) in [("ann", 1), ("bob", 2), ("ANN", 2), ("a.nn", 3), ("ann", 3), ("bob", 4)] {
        cache.find(&query(&format!("{name}@gmail.com"))).await.unwrap();
        assert_eq!(vendor.calls(), calls, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn zero_ttl_disables_caching_and_limits_may_be_infinite() {
    for (ttl, calls) in [(Duration::ZERO, 2), (Duration::MAX, 1)] {
        let vendor = Vendor::new(finds("ada"));
        let cache = cache(vendor.clone(), usize::MAX, ttl);
        look_up(&cache).await;
        sleep(ttl.min(Duration::from_secs(1_000_000))).await;
        look_up(&cache).await;
        assert_eq!(vendor.calls(), calls, "{ttl:?}");
    }
}
