use std::time::Duration;

use enrich_middleware::{Retry, RetryPolicy, VendorError, VendorErrorKind};
use proptest::prelude::*;

use crate::scripted::{
    Told, Vendor, ask, ask_timed, breaks, drop_at_each_ms, fails, finds, found, knows_nobody,
};

const POLICY: RetryPolicy = RetryPolicy {
    tries_max: 4,
    pause_first: Duration::from_millis(100),
    pause_max: Duration::from_millis(300),
    budget: Duration::from_secs(3),
};

fn slow_down(retry_after: Duration) -> VendorError {
    VendorError::new(VendorErrorKind::SlowDown).with_retry_after(retry_after)
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_passes_is_not_the_clients() {
    let unavailable = || fails(VendorErrorKind::Unavailable);
    let vendor = Vendor::that_first([unavailable(), unavailable()], finds("ada"));
    assert_eq!(ask(&Retry::new(vendor.clone(), POLICY, 7)).await, found("ada"));
    assert_eq!(vendor.asks(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_not_asked_for_again() {
    let vendor = Vendor::that(knows_nobody());
    assert_eq!(ask(&Retry::new(vendor.clone(), POLICY, 7)).await, Told::Nobody);
    assert_eq!(vendor.asks(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_gives_up_after_the_last_try_with_the_last_fault() {
    let vendor = Vendor::that_first([fails(VendorErrorKind::SlowDown)], fails(VendorErrorKind::Unavailable));
    assert_eq!(ask(&Retry::new(vendor.clone(), POLICY, 7)).await, Told::Fault(VendorErrorKind::Unavailable));
    assert_eq!(vendor.asks(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_safe_to_repeat_is_not_repeated() {
    use VendorErrorKind::*;
    for kind in [KeyRefused, OutOfCredits, TimedOut, BadAnswer, BadRequest, BreakerOpen, QueueFull] {
        let vendor = Vendor::that(fails(kind));
        assert_eq!(ask_timed(&Retry::new(vendor.clone(), POLICY, 7)).await, (Told::Fault(kind), 0));
        assert_eq!(vendor.asks(), 1, "{kind}");
    }
    let vendor = Vendor::that(breaks());
    ask(&Retry::new(vendor.clone(), POLICY, 7)).await;
    assert_eq!(vendor.asks(), 1, "an error that is no vendor's error");
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_is_waited_for() {
    let vendor = Vendor::that_first([fails(slow_down(Duration::from_secs(2)))], finds("ada"));
    let (told, ms) = ask_timed(&Retry::new(vendor, POLICY, 7)).await;
    assert_eq!(told, found("ada"));
    assert!((2_000..=2_101).contains(&ms), "{ms}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_beyond_what_is_left_is_given_up_at_once() {
    for wait in [Duration::from_secs(3), Duration::from_secs(86_400), Duration::MAX] {
        let vendor = Vendor::that(fails(slow_down(wait)));
        let told = ask_timed(&Retry::new(vendor.clone(), POLICY, 7)).await;
        assert_eq!(told, (Told::Fault(VendorErrorKind::SlowDown), 0));
        assert_eq!(vendor.asks(), 1);
    }
    // A pause of 2 s fits into the budget of 3 s, but not after a first try of 1.5 s.
    let vendor = Vendor::that(fails(slow_down(Duration::from_secs(2))).after(1_500));
    assert_eq!(ask_timed(&Retry::new(vendor.clone(), POLICY, 7)).await.1, 1_500);
    assert_eq!(vendor.asks(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_seed_makes_the_same_pauses_and_another_makes_others() {
    let mut pauses = Vec::new();
    for seed in [1, 1, 2] {
        let vendor = Vendor::that(fails(VendorErrorKind::Unavailable));
        ask(&Retry::new(vendor.clone(), POLICY, seed)).await;
        pauses.push(vendor.asked_at());
    }
    assert_eq!(pauses[0], pauses[1]);
    assert_ne!(pauses[0], pauses[2]);
}

#[tokio::test(start_paused = true)]
async fn the_jitter_is_full_from_nothing_up_to_a_ceiling_that_doubles() {
    let mut pauses = [const { Vec::new() }; 3];
    for seed in 0..300 {
        let vendor = Vendor::that(fails(VendorErrorKind::Unavailable));
        ask(&Retry::new(vendor.clone(), POLICY, seed)).await;
        for (i, at) in vendor.asked_at().windows(2).enumerate() {
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

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_it_leaves_nothing() {
    let vendor = Vendor::that(fails(VendorErrorKind::Unavailable).after(20));
    let retry = Retry::new(vendor.clone(), POLICY, 7);
    drop_at_each_ms(&retry, 700, |ms| assert_eq!(vendor.under_way(), 0, "{ms}")).await;
}

proptest! {
    #[test]
    fn no_try_begins_after_the_budget(
        seed in any::<u64>(),
        retry_after in prop::option::of((0..5_000_u64).prop_map(Duration::from_millis)),
        tries_max in 0..40_u32,
        pause_first in 0..2_000_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let error = VendorError { kind: VendorErrorKind::SlowDown, retry_after };
        let vendor = Vendor::that(fails(error).after(10));
        let policy = RetryPolicy { tries_max, pause_first: Duration::from_millis(pause_first), ..POLICY };
        let (_, ms) = runtime.block_on(ask_timed(&Retry::new(vendor.clone(), policy, seed)));
        prop_assert!(vendor.asks() <= tries_max.max(1) as usize);
        prop_assert!(vendor.asked_at().iter().all(|at| *at <= 3_000), "{:?}", vendor.asked_at());
        prop_assert!(ms <= 3_000 + 11, "{}", ms);
    }
}
