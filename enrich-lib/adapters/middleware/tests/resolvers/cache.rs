use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_middleware::{Cache, CachePolicy, EmailHasher, VendorErrorKind};
use tokio::time::sleep;

use crate::scripted::{Told, Vendor, ask, drop_at_each_ms, fails, finds, found, knows_nobody, query};

const FOUND_TTL: Duration = Duration::from_secs(3_600);
const NOT_FOUND_TTL: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn cache(vendor: &Arc<Vendor>, entries_max: usize, found_ttl: Duration, not_found_ttl: Duration) -> Cache {
    let entries_max = NonZeroUsize::new(entries_max).expect("not zero");
    let policy = CachePolicy { entries_max, found_ttl, not_found_ttl };
    Cache::new(vendor.clone(), EmailHasher::new([7; 32]), policy)
}

#[tokio::test(start_paused = true)]
async fn a_match_is_remembered_until_its_ttl_ends() {
    let vendor = Vendor::that_first([finds("ada")], finds("ada-now"));
    let cache = cache(&vendor, 10, FOUND_TTL, NOT_FOUND_TTL);
    assert_eq!(ask(&cache).await, found("ada"));
    sleep(FOUND_TTL - MS).await;
    assert_eq!((ask(&cache).await, vendor.asks()), (found("ada"), 1));
    sleep(MS).await;
    assert_eq!((ask(&cache).await, vendor.asks()), (found("ada-now"), 2));
}

#[tokio::test(start_paused = true)]
async fn no_match_is_remembered_until_its_own_ttl_ends() {
    let vendor = Vendor::that_first([knows_nobody()], finds("ada"));
    let cache = cache(&vendor, 10, FOUND_TTL, NOT_FOUND_TTL);
    assert_eq!(ask(&cache).await, Told::Nobody);
    sleep(NOT_FOUND_TTL - MS).await;
    assert_eq!((ask(&cache).await, vendor.asks()), (Told::Nobody, 1));
    sleep(MS).await;
    assert_eq!((ask(&cache).await, vendor.asks()), (found("ada"), 2));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_never_remembered() {
    let vendor = Vendor::that_first([fails(VendorErrorKind::KeyRefused)], finds("ada"));
    let cache = cache(&vendor, 10, FOUND_TTL, NOT_FOUND_TTL);
    assert_eq!(ask(&cache).await, Told::Fault(VendorErrorKind::KeyRefused));
    assert_eq!(ask(&cache).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn all_addresses_of_one_mailbox_are_one_answer() {
    let vendor = Vendor::that(finds("ada"));
    let cache = cache(&vendor, 10, FOUND_TTL, NOT_FOUND_TTL);
    ask(&cache).await;
    let same_mailbox = cache.find(&query("AdaMarlowe+shop@googlemail.com")).await;
    assert_eq!((Told::from(&same_mailbox), vendor.asks()), (found("ada"), 1));
    cache.find(&query("bob@gmail.com")).await.unwrap();
    assert_eq!(vendor.asks(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_forgets_who_was_not_asked_for_longest() {
    let vendor = Vendor::that(finds("someone"));
    let cache = cache(&vendor, 2, FOUND_TTL, NOT_FOUND_TTL);
    for (person, asks) in [("ann", 1), ("bob", 2), ("ann", 2), ("cy", 3), ("ann", 3), ("bob", 4)] {
        cache.find(&query(&format!("{person}@gmail.com"))).await.unwrap();
        assert_eq!(vendor.asks(), asks, "{person}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_ttl_of_nothing_remembers_nothing_and_one_without_end_does_not_end() {
    let vendor = Vendor::that(finds("ada"));
    let forgetful = cache(&vendor, 10, Duration::ZERO, NOT_FOUND_TTL);
    ask(&forgetful).await;
    ask(&forgetful).await;
    assert_eq!(vendor.asks(), 2);

    let faithful = cache(&vendor, 10, Duration::MAX, Duration::MAX);
    ask(&faithful).await;
    sleep(Duration::from_secs(1_000_000)).await;
    ask(&faithful).await;
    assert_eq!(vendor.asks(), 3);
}

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_it_leaves_nothing() {
    let vendor = Vendor::that(finds("ada").after(20));
    let cache = cache(&vendor, 10, FOUND_TTL, NOT_FOUND_TTL);
    drop_at_each_ms(&cache, 19, |ms| assert_eq!(vendor.under_way(), 0, "{ms}")).await;
    let asks = vendor.asks();
    assert_eq!((ask(&cache).await, vendor.asks()), (found("ada"), asks + 1), "half an answer is none");
}
