use std::time::Duration;

use enrich_lib::resolver::VendorErrorKind;
use enrich_middleware::{Hedge, HedgeDelay, Permits};

use crate::scripted::{
    LookupResult, Vendor, drop_at_each_ms, fails, fails_untyped, finds, found, hangs, look_up, look_up_timed,
    no_match,
};

const FIXED: HedgeDelay = HedgeDelay::Fixed(Duration::from_millis(50));
const P95: HedgeDelay = HedgeDelay::P95 { initial: Duration::from_millis(500) };

#[tokio::test(start_paused = true)]
async fn sends_one_request_if_answered_before_delay() {
    let vendor = Vendor::new(finds("ada").after(49));
    let hedge = Hedge::new(vendor.clone(), FIXED);
    assert_eq!(look_up_timed(&hedge).await, (found("ada"), 49));
    assert_eq!(vendor.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn second_request_wins_and_first_is_dropped() {
    let vendor = Vendor::scripted([hangs()], finds("ada").after(10));
    let hedge = Hedge::new(vendor.clone(), FIXED);
    assert_eq!(look_up_timed(&hedge).await, (found("ada"), 60));
    assert_eq!((vendor.call_times_ms(), vendor.in_flight()), (vec![0, 50], 0));
}

#[tokio::test(start_paused = true)]
async fn first_request_wins_and_second_is_dropped() {
    let vendor = Vendor::scripted([no_match().after(70)], hangs());
    let hedge = Hedge::new(vendor.clone(), FIXED);
    assert_eq!(look_up_timed(&hedge).await, (LookupResult::NoMatch, 70));
    assert_eq!((vendor.calls(), vendor.in_flight()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn second_request_needs_a_permit_and_releases_it() {
    let vendor = Vendor::scripted([finds("first").after(90)], finds("second").after(10));
    let permits = Permits::new(1, 0);
    let hedge = Hedge::new(vendor.clone(), FIXED).with_permits(permits.clone());
    let taken = permits.try_acquire();
    assert_eq!(look_up_timed(&hedge).await, (found("first"), 90));
    assert_eq!(vendor.calls(), 1);

    drop(taken);
    vendor.set_next_behavior(hangs(), finds("second").after(10));
    assert_eq!(look_up_timed(&hedge).await, (found("second"), 60));
    assert!(permits.try_acquire().is_some());
}

#[tokio::test(start_paused = true)]
async fn returns_failure_before_delay() {
    let vendor = Vendor::scripted([fails(VendorErrorKind::Unavailable).after(10)], finds("ada"));
    let hedge = Hedge::new(vendor.clone(), FIXED);
    assert_eq!(look_up_timed(&hedge).await, (LookupResult::VendorError(VendorErrorKind::Unavailable), 10));
}

#[tokio::test(start_paused = true)]
async fn failed_request_waits_for_the_other() {
    let first_fails = Vendor::scripted([fails_untyped().after(60)], finds("ada").after(100));
    assert_eq!(look_up_timed(&Hedge::new(first_fails, FIXED)).await, (found("ada"), 150));
    let second_fails = Vendor::scripted([finds("ada").after(100)], fails(VendorErrorKind::QueueFull));
    assert_eq!(look_up_timed(&Hedge::new(second_fails, FIXED)).await, (found("ada"), 100));
}

#[tokio::test(start_paused = true)]
async fn returns_first_error_when_both_requests_fail() {
    let vendor = Vendor::scripted(
        [fails(VendorErrorKind::KeyRejected).after(60)],
        fails(VendorErrorKind::InvalidResponse).after(30),
    );
    let hedge = Hedge::new(vendor, FIXED);
    assert_eq!(look_up_timed(&hedge).await, (LookupResult::VendorError(VendorErrorKind::KeyRejected), 80));
}

#[tokio::test(start_paused = true)]
async fn computes_p95_from_recent_lookups() {
    let vendor = Vendor::new(finds("ada").after(100));
    let hedge = Hedge::new(vendor.clone(), P95);
    for _ in 1..Hedge::RECENT_MIN {
        assert_eq!(look_up(&hedge).await, found("ada"));
    }
    vendor.set_behavior(hangs());
    assert!(tokio::time::timeout(Duration::from_millis(499), look_up(&hedge)).await.is_err());
    assert_eq!(vendor.calls(), Hedge::RECENT_MIN, "19 answers are too few to judge by");
    vendor.set_behavior(finds("ada").after(100));
    assert_eq!(look_up(&hedge).await, found("ada"));
    // All 20 answers took 100 ms, so the second request is sent after 100 ms and not after the initial 500
    // ms.
    vendor.set_behavior(hangs());
    assert!(tokio::time::timeout(Duration::from_millis(99), look_up(&hedge)).await.is_err());
    assert_eq!(vendor.calls(), Hedge::RECENT_MIN + 2);
    assert!(tokio::time::timeout(Duration::from_millis(101), look_up(&hedge)).await.is_err());
    assert_eq!(vendor.calls(), Hedge::RECENT_MIN + 4);
}

#[tokio::test(start_paused = true)]
async fn p95_hedges_one_lookup_in_twenty_despite_slow_tail() {
    let vendor = Vendor::new(finds("ada"));
    let hedge = Hedge::new(vendor.clone(), P95);
    let lookups = 2_000;
    for i in 0..lookups {
        // Answers take 100 to 200 ms, and one in ten takes 400 to 500 ms: more than the share that is hedged.
        let tail = if i % 10 == 9 { 300 } else { 0 };
        vendor.set_behavior(finds("ada").after(100 + tail + i * 37 % 101));
        assert_eq!(look_up(&hedge).await, found("ada"));
    }
    let hedged = vendor.calls() as u64 - lookups;
    assert!((lookups * 2 / 100..lookups * 8 / 100).contains(&hedged), "{hedged}");
}

#[tokio::test(start_paused = true)]
async fn successful_hedges_do_not_shrink_the_delay() {
    let vendor = Vendor::new(finds("ada"));
    let hedge = Hedge::new(vendor.clone(), P95);
    let lookups = 2_000;
    for i in 0..lookups {
        // One first request in ten takes 2 s; a second request never does.
        let usual = 100 + i * 37 % 101;
        vendor.set_next_behavior(
            finds("ada").after(if i % 10 == 9 { 2_000 } else { usual }),
            finds("ada").after(usual),
        );
        assert_eq!(look_up(&hedge).await, found("ada"));
    }
    let hedged = vendor.calls() as u64 - lookups;
    assert!(hedged < lookups * 11 / 100, "{hedged}");
}

#[tokio::test(start_paused = true)]
async fn adapts_delay_to_slower_vendor() {
    let vendor = Vendor::new(finds("ada").after(100));
    let hedge = Hedge::new(vendor.clone(), P95);
    for _ in 0..Hedge::RECENT_MAX {
        look_up(&hedge).await;
    }
    vendor.set_behavior(finds("ada").after(200));
    for _ in 0..Hedge::RECENT_MAX {
        look_up(&hedge).await;
    }
    let hedged = vendor.calls() - 2 * Hedge::RECENT_MAX;
    assert!(hedged < 10, "{hedged}");
}

#[tokio::test(start_paused = true)]
async fn dropped_lookup_leaves_no_call_in_flight() {
    let vendor = Vendor::new(hangs());
    let hedge = Hedge::new(vendor.clone(), FIXED);
    drop_at_each_ms(&hedge, 60, |ms| assert_eq!(vendor.in_flight(), 0, "{ms}")).await;
}
