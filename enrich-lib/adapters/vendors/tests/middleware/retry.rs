//! Retries of transient failures: their number, their pauses and their budget.

use std::time::Duration;

use enrich_lib::resolver::{VendorError, VendorErrorKind};
use enrich_vendors::middleware::{Retry, RetryPolicy};
use proptest::prelude::*;

use crate::scripted::{
    LookupResult, Vendor, fails, fails_untyped, finds, found, look_up, look_up_timed, paused_runtime,
};

const POLICY: RetryPolicy = RetryPolicy {
    tries_max: 4,
    delay_first: Duration::from_millis(100),
    delay_max: Duration::from_millis(300),
    budget: Duration::from_secs(3),
};

#[tokio::test(start_paused = true)]
async fn retries_transient_failures_while_their_pauses_fit_into_the_budget() {
    use VendorErrorKind::{KeyRejected, RateLimited, Unavailable};
    let limited = |pause| fails(VendorError::new(RateLimited).with_retry_after(Duration::from_millis(pause)));
    let error = LookupResult::VendorError;
    for (name, script, then, result, calls, ms) in [
        ("recovery", vec![fails(Unavailable), fails(Unavailable)], finds("ada"), found("ada"), 3, 0..=302),
        ("no recovery", vec![fails(RateLimited)], fails(Unavailable), error(Unavailable), 4, 0..=603),
        ("a pause", vec![limited(2_000)], finds("ada"), found("ada"), 2, 2_000..=2_101),
        ("a pause as long as the budget", vec![], limited(3_000), error(RateLimited), 1, 0..=0),
        ("an endless pause", vec![], limited(u64::MAX), error(RateLimited), 1, 0..=0),
        ("a late pause", vec![], limited(2_000).after(1_500), error(RateLimited), 1, 1_500..=1_500),
        ("a permanent failure", vec![], fails(KeyRejected), error(KeyRejected), 1, 0..=0),
        ("another error", vec![], fails_untyped(), LookupResult::OtherError("it broke".to_owned()), 1, 0..=0),
    ] {
        let vendor = Vendor::scripted(script, then);
        let (actual, took) = look_up_timed(&Retry::new(vendor.clone(), POLICY, 7)).await;
        assert_eq!((actual, vendor.calls()), (result, calls), "{name}");
        assert!(ms.contains(&took), "{name}: {took} ms");
    }
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
        let mut error = VendorError::new(VendorErrorKind::RateLimited);
        error.retry_after = retry_after;
        let vendor = Vendor::new(fails(error).after(10));
        let policy = RetryPolicy { tries_max, delay_first: Duration::from_millis(delay_first), ..POLICY };
        let (_, ms) = paused_runtime().block_on(look_up_timed(&Retry::new(vendor.clone(), policy, seed)));
        prop_assert!(vendor.calls() <= tries_max.max(1) as usize);
        prop_assert!(vendor.call_times_ms().iter().all(|at| *at <= 3_000), "{:?}", vendor.call_times_ms());
        prop_assert!(ms <= 3_000 + 11, "{}", ms);
    }
}
