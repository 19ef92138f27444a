use std::time::Duration;

use enrich_lib::resolver::{VendorError, VendorErrorKind};
use enrich_vendors::middleware::{Retry, RetryPolicy};
use proptest::prelude::*;

use crate::scripted::{LookupResult, Vendor, fails, fails_untyped, finds, found, look_up, look_up_timed};

const POLICY: RetryPolicy = RetryPolicy {
    tries_max: 4,
    delay_first: Duration::from_millis(100),
    delay_max: Duration::from_millis(300),
    budget: Duration::from_secs(3),
};

fn rate_limited(retry_after: Duration) -> VendorError {
    VendorError::new(VendorErrorKind::RateLimited).with_retry_after(retry_after)
}

#[tokio::test(start_paused = true)]
async fn retries_transient_failures() {
    let unavailable = || fails(VendorErrorKind::Unavailable);
    let vendor = Vendor::scripted([unavailable(), unavailable()], finds("ada"));
    assert_eq!(look_up(&Retry::new(vendor.clone(), POLICY, 7)).await, found("ada"));
    assert_eq!(vendor.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn returns_last_error_after_last_try() {
    let vendor = Vendor::scripted([fails(VendorErrorKind::RateLimited)], fails(VendorErrorKind::Unavailable));
    assert_eq!(
        look_up(&Retry::new(vendor.clone(), POLICY, 7)).await,
        LookupResult::VendorError(VendorErrorKind::Unavailable)
    );
    assert_eq!(vendor.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn does_not_retry_unretryable_errors() {
    use VendorErrorKind::*;
    for kind in
        [KeyRejected, OutOfCredits, TimedOut, InvalidResponse, RequestRejected, CircuitOpen, QueueFull]
    {
        let vendor = Vendor::new(fails(kind));
        assert_eq!(
            look_up_timed(&Retry::new(vendor.clone(), POLICY, 7)).await,
            (LookupResult::VendorError(kind), 0)
        );
        assert_eq!(vendor.calls(), 1, "{kind}");
    }
    let vendor = Vendor::new(fails_untyped());
    look_up(&Retry::new(vendor.clone(), POLICY, 7)).await;
    assert_eq!(vendor.calls(), 1, "an error that is no vendor's error");
}

#[tokio::test(start_paused = true)]
async fn waits_for_retry_after() {
    let vendor = Vendor::scripted([fails(rate_limited(Duration::from_secs(2)))], finds("ada"));
    let (result, ms) = look_up_timed(&Retry::new(vendor, POLICY, 7)).await;
    assert_eq!(result, found("ada"));
    assert!((2_000..=2_101).contains(&ms), "{ms}");
}

#[tokio::test(start_paused = true)]
async fn fails_at_once_if_retry_after_exceeds_budget() {
    for wait in [Duration::from_secs(3), Duration::from_secs(86_400), Duration::MAX] {
        let vendor = Vendor::new(fails(rate_limited(wait)));
        let result = look_up_timed(&Retry::new(vendor.clone(), POLICY, 7)).await;
        assert_eq!(result, (LookupResult::VendorError(VendorErrorKind::RateLimited), 0));
        assert_eq!(vendor.calls(), 1);
    }
    // A pause of 2 s fits into the budget of 3 s, but not after a first try of 1.5 s.
    let vendor = Vendor::new(fails(rate_limited(Duration::from_secs(2))).after(1_500));
    assert_eq!(look_up_timed(&Retry::new(vendor.clone(), POLICY, 7)).await.1, 1_500);
    assert_eq!(vendor.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn uses_full_jitter_with_doubling_ceiling() {
    let mut pauses = [const { Vec::new() }; 3];
    for seed in 0..300 {
        let vendor = Vendor::new(fails(VendorErrorKind::Unavailable));
        look_up(&Retry::new(vendor.clone(), POLICY, seed)).await;
        for (i, at) in vendor.call_times_ms().windows(2).enumerate() {
            pauses[i].push(at[1] - at[0]);
        }
    }
    for (pauses, ceiling) in pauses.iter().zip([100, 200, 300]) {
        let (min, max) = (*pauses.iter().min().unwrap(), *pauses.iter().max().unwrap());
        assert!(
            min < ceiling / 10 && max > ceiling * 9 / 10 && max <= ceiling + 1,
            "{min}..{max} of {ceiling}"
        );
    }
}

proptest! {
    #[test]
    fn starts_no_try_after_budget(
        seed in any::<u64>(),
        retry_after in prop::option::of((0..5_000_u64).prop_map(Duration::from_millis)),
        tries_max in 0..40_u32,
        delay_first in 0..2_000_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let mut error = VendorError::new(VendorErrorKind::RateLimited);
        error.retry_after = retry_after;
        let vendor = Vendor::new(fails(error).after(10));
        let policy = RetryPolicy { tries_max, delay_first: Duration::from_millis(delay_first), ..POLICY };
        let (_, ms) = runtime.block_on(look_up_timed(&Retry::new(vendor.clone(), policy, seed)));
        prop_assert!(vendor.calls() <= tries_max.max(1) as usize);
        prop_assert!(vendor.call_times_ms().iter().all(|at| *at <= 3_000), "{:?}", vendor.call_times_ms());
        prop_assert!(ms <= 3_000 + 11, "{}", ms);
    }
}
