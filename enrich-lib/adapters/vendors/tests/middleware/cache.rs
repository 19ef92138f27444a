use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{Cache, CachePolicy, CacheStatistics, EmailHasher, Waterfall};
use tokio::time::sleep;

use crate::scripted::{LookupResult, Vendor, ada, fails, finds, found, look_up, no_match, query};

const FOUND_TTL: Duration = Duration::from_secs(3_600);
const NOT_FOUND_TTL: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn cache(vendor: &Arc<Vendor>, entries_max: usize, found_ttl: Duration, not_found_ttl: Duration) -> Cache {
    let entries_max = NonZeroUsize::new(entries_max).expect("not zero");
    let policy = CachePolicy { entries_max, found_ttl, not_found_ttl };
    Cache::new(vendor.clone(), EmailHasher::new([7; 16]), policy)
}

#[tokio::test(start_paused = true)]
async fn caches_each_answer_until_its_ttl_ends() {
    for (first, answer, ttl) in
        [(finds("ada"), found("ada"), FOUND_TTL), (no_match(), LookupResult::NoMatch, NOT_FOUND_TTL)]
    {
        let vendor = Vendor::scripted([first], finds("ada-now"));
        let cache = cache(&vendor, 10, FOUND_TTL, NOT_FOUND_TTL);
        assert_eq!(look_up(&cache).await, answer);
        sleep(ttl - MS).await;
        assert_eq!((look_up(&cache).await, vendor.calls()), (answer, 1));
        sleep(MS).await;
        assert_eq!((look_up(&cache).await, vendor.calls()), (found("ada-now"), 2));
    }
}

#[tokio::test(start_paused = true)]
async fn counts_hits_misses_and_entries() {
    let vendor = Vendor::scripted([fails(VendorErrorKind::Unavailable)], finds("ada"));
    let cache = cache(&vendor, 10, FOUND_TTL, NOT_FOUND_TTL);
    for _ in 0..4 {
        look_up(&cache).await;
    }
    let CacheStatistics { hits, misses, entries, .. } = cache.statistics();
    assert_eq!((hits, misses, entries), (2, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn marks_only_answers_from_the_cache() {
    for (behavior, name) in [(finds("ada"), Some("alpha")), (no_match(), None)] {
        let waterfall = Arc::new(Waterfall::new().then("alpha", Vendor::new(behavior)));
        let policy = CachePolicy {
            entries_max: NonZeroUsize::MIN,
            found_ttl: FOUND_TTL,
            not_found_ttl: NOT_FOUND_TTL,
        };
        let cache = Cache::new(waterfall, EmailHasher::new([7; 16]), policy);
        for is_cached in [false, true, true] {
            let answer = cache.find(&ada()).await.unwrap();
            assert_eq!(answer.source.as_ref().map(|source| source.as_str()), name);
            assert_eq!(answer.is_cached, is_cached);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_of_one_mailbox_share_an_entry() {
    let vendor = Vendor::new(finds("ada"));
    let cache = cache(&vendor, 10, FOUND_TTL, NOT_FOUND_TTL);
    look_up(&cache).await;
    let same_mailbox = cache.find(&query("AdaMarlowe+shop@googlemail.com")).await;
    assert_eq!((LookupResult::from(&same_mailbox), vendor.calls()), (found("ada"), 1));
    cache.find(&query("bob@gmail.com")).await.unwrap();
    assert_eq!(vendor.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn evicts_least_recently_used_entry() {
    let vendor = Vendor::new(finds("someone"));
    let cache = cache(&vendor, 2, FOUND_TTL, NOT_FOUND_TTL);
    for (person, calls) in [("ann", 1), ("bob", 2), ("ann", 2), ("cy", 3), ("ann", 3), ("bob", 4)] {
        cache.find(&query(&format!("{person}@gmail.com"))).await.unwrap();
        assert_eq!(vendor.calls(), calls, "{person}");
    }
}

#[tokio::test(start_paused = true)]
async fn zero_ttl_disables_caching_and_infinite_ttl_never_expires() {
    let vendor = Vendor::new(finds("ada"));
    let forgetful = cache(&vendor, 10, Duration::ZERO, NOT_FOUND_TTL);
    look_up(&forgetful).await;
    look_up(&forgetful).await;
    assert_eq!(vendor.calls(), 2);

    let faithful = cache(&vendor, 10, Duration::MAX, Duration::MAX);
    look_up(&faithful).await;
    sleep(Duration::from_secs(1_000_000)).await;
    look_up(&faithful).await;
    assert_eq!(vendor.calls(), 3);
}
