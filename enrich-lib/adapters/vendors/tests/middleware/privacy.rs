//! Checks that no error and no `Debug` output contains an email, however deeply nested.

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{
    Cache, CachePolicy, CircuitBreaker, CircuitBreakerPolicy, Coalesce, ConcurrencyLimit, Deadline,
    EmailHasher, OptOutFilter, Permits, Retry, RetryPolicy, Waterfall,
};

use crate::scripted::{Vendor, ada, fails, finds, look_up, opted_out, start};

fn assert_hidden(text: &str) {
    let text = text.to_lowercase();
    assert!(["marlowe", "@", "gmail"].iter().all(|part| !text.contains(part)), "{text}");
}

#[tokio::test(start_paused = true)]
async fn debug_output_contains_no_email_or_profile() {
    let hasher = EmailHasher::new([7; 16]);
    let vendor = Vendor::new(finds("marlowe").after(10));
    let ttl = Duration::from_secs(60);
    let policy = CachePolicy { entries_max: NonZeroUsize::MIN, found_ttl: ttl, not_found_ttl: ttl };

    let cache = Cache::new(vendor.clone(), hasher.clone(), policy);
    look_up(&cache).await;
    let coalesce = Arc::new(Coalesce::new(vendor.clone(), hasher.clone()));
    let in_flight = start(&coalesce).await;

    let filter = OptOutFilter::new(vendor.clone(), opted_out(&["ada.marlowe@gmail.com"]));
    assert_hidden(&format!("{hasher:?} {cache:?} {coalesce:?} {filter:?}"));
    assert_hidden(&format!("{:?}", Waterfall::new().then("alpha", vendor.clone())));
    assert_hidden(&format!("{:?}", Deadline::new(vendor.clone(), ttl)));
    assert_hidden(&format!("{:?}", Retry::new(vendor.clone(), RetryPolicy::default(), 7)));
    assert_hidden(&format!("{:?}", CircuitBreaker::new(vendor.clone(), CircuitBreakerPolicy::default())));
    assert_hidden(&format!("{:?}", ConcurrencyLimit::new(vendor, Permits::new(1, 1), ttl)));
    in_flight.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn errors_contain_no_email() {
    let hasher = EmailHasher::new([7; 16]);
    let vendor = Vendor::new(fails(VendorErrorKind::InvalidResponse));
    let waterfall = Waterfall::new().then("alpha", vendor.clone()).then("beta", vendor);
    let error = Coalesce::new(Arc::new(waterfall), hasher).find(&ada()).await.unwrap_err();
    assert_hidden(&format!("{error} {error:?}"));
    assert!(error.source().is_none(), "its text is complete");
}
