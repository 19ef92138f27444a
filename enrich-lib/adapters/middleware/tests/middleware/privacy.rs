//! Checks that no error and no `Debug` output contains an email, however deeply nested.

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_middleware::{
    Cache, CachePolicy, CircuitBreaker, CircuitBreakerPolicy, Coalesce, ConcurrencyLimit, Deadline,
    EmailHasher, HashedOptOuts, Hedge, HedgeDelay, OptOutFilter, Permits, Retry, RetryPolicy, Waterfall,
};

use crate::scripted::{Vendor, ada, fails, finds, look_up, start};

fn assert_hidden(text: &str) {
    let text = text.to_lowercase();
    assert!(["marlowe", "@", "gmail"].iter().all(|part| !text.contains(part)), "{text}");
}

#[tokio::test(start_paused = true)]
async fn debug_output_contains_no_email_or_profile() {
    let hasher = EmailHasher::new([7; 32]);
    let vendor = Vendor::new(finds("marlowe").after(10));
    let ttl = Duration::from_secs(60);
    let policy = CachePolicy { entries_max: NonZeroUsize::MIN, found_ttl: ttl, not_found_ttl: ttl };
    let opt_outs = HashedOptOuts::new(hasher.clone(), [hasher.opt_out_hash(&ada().email)]);

    let cache = Cache::new(vendor.clone(), hasher.clone(), policy);
    look_up(&cache).await;
    let coalesce = Arc::new(Coalesce::new(vendor.clone(), hasher.clone()));
    let in_flight = start(&coalesce).await;

    assert_hidden(&format!("{hasher:?} {:?} {opt_outs:?}", hasher.hash(&ada().email)));
    assert_hidden(&format!(
        "{cache:?} {coalesce:?} {:?}",
        OptOutFilter::new(vendor.clone(), Arc::new(opt_outs))
    ));
    assert_hidden(&format!("{:?}", Waterfall::new().then("alpha", vendor.clone())));
    assert_hidden(&format!("{:?}", Deadline::new(vendor.clone(), ttl)));
    assert_hidden(&format!("{:?}", Retry::new(vendor.clone(), RetryPolicy::default(), 7)));
    assert_hidden(&format!("{:?}", CircuitBreaker::new(vendor.clone(), CircuitBreakerPolicy::default())));
    assert_hidden(&format!("{:?}", Hedge::new(vendor.clone(), HedgeDelay::Fixed(ttl))));
    assert_hidden(&format!("{:?}", ConcurrencyLimit::new(vendor, Permits::new(1, 1), ttl)));
    in_flight.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn errors_contain_no_email() {
    let hasher = EmailHasher::new([7; 32]);
    let vendor = Vendor::new(fails(VendorErrorKind::InvalidResponse));
    let waterfall = Waterfall::new().then("alpha", vendor.clone()).then("beta", vendor);
    let error = Coalesce::new(Arc::new(waterfall), hasher).find(&ada()).await.unwrap_err();
    assert_hidden(&format!("{error} {error:?}"));
    assert!(error.source().is_none(), "its text is complete");
}

#[test]
fn hashes_of_different_keys_differ() {
    let (one, other) = (EmailHasher::new([7; 32]), EmailHasher::new([8; 32]));
    assert_eq!(one.hash(&ada().email), one.clone().hash(&ada().email));
    assert_ne!(one.hash(&ada().email), other.hash(&ada().email));
}
