//! Checks that no error and no `Debug` output contains an email, however deeply nested.

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_middleware::{
    Breaker, BreakerPolicy, Cache, CachePolicy, Coalesce, Deadline, EmailHasher, HashedOptOuts, Hedge,
    HedgeDelay, Limit, Permits, Retry, RetryPolicy, Suppress, VendorErrorKind, Waterfall,
};

use crate::scripted::{Vendor, ada, ask, fails, finds, start};

fn assert_hidden(text: &str) {
    let text = text.to_lowercase();
    assert!(["marlowe", "@", "gmail"].iter().all(|part| !text.contains(part)), "{text}");
}

#[tokio::test(start_paused = true)]
async fn no_resolver_shows_an_email_or_a_profile_in_its_debug_output() {
    let hasher = EmailHasher::new([7; 32]);
    let vendor = Vendor::that(finds("marlowe").after(10));
    let ttl = Duration::from_secs(60);
    let policy = CachePolicy { entries_max: NonZeroUsize::MIN, found_ttl: ttl, not_found_ttl: ttl };
    let opt_outs = HashedOptOuts::new(hasher.clone(), [hasher.hash(&ada().email)]);

    let cache = Cache::new(vendor.clone(), hasher.clone(), policy);
    ask(&cache).await;
    let coalesce = Arc::new(Coalesce::new(vendor.clone(), hasher.clone()));
    let in_flight = start(&coalesce).await;

    assert_hidden(&format!("{hasher:?} {:?} {opt_outs:?}", hasher.hash(&ada().email)));
    assert_hidden(&format!("{cache:?} {coalesce:?} {:?}", Suppress::new(vendor.clone(), Arc::new(opt_outs))));
    assert_hidden(&format!("{:?}", Waterfall::starting_with("alpha", vendor.clone())));
    assert_hidden(&format!("{:?}", Deadline::new(vendor.clone(), ttl)));
    assert_hidden(&format!("{:?}", Retry::new(vendor.clone(), RetryPolicy::default(), 7)));
    assert_hidden(&format!("{:?}", Breaker::new(vendor.clone(), BreakerPolicy::default())));
    assert_hidden(&format!("{:?}", Hedge::where_asks_are_free(vendor.clone(), HedgeDelay::Fixed(ttl))));
    assert_hidden(&format!("{:?}", Limit::new(vendor, Permits::new(1, 1), ttl)));
    in_flight.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_error_shows_an_email() {
    let hasher = EmailHasher::new([7; 32]);
    let vendor = Vendor::that(fails(VendorErrorKind::BadAnswer));
    let waterfall = Waterfall::starting_with("alpha", vendor.clone()).then("beta", vendor);
    let error = Coalesce::new(Arc::new(waterfall), hasher).find(&ada()).await.unwrap_err();
    assert_hidden(&format!("{error} {error:?}"));
    assert!(error.source().is_none(), "its text tells all");
}

#[test]
fn the_hash_tells_people_apart_only_with_its_key() {
    let (one, other) = (EmailHasher::new([7; 32]), EmailHasher::new([8; 32]));
    assert_eq!(one.hash(&ada().email), one.clone().hash(&ada().email));
    assert_ne!(one.hash(&ada().email), other.hash(&ada().email));
}
