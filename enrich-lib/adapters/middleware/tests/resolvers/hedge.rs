use std::time::Duration;

use enrich_middleware::{Hedge, HedgeDelay, Permits, VendorErrorKind};

use crate::scripted::{
    Told, Vendor, ask, ask_timed, breaks, drop_at_each_ms, fails, finds, found, hangs, knows_nobody,
};

const FIXED: HedgeDelay = HedgeDelay::Fixed(Duration::from_millis(50));
const P95: HedgeDelay = HedgeDelay::P95 { at_first: Duration::from_millis(500) };

#[tokio::test(start_paused = true)]
async fn an_answer_before_the_delay_is_the_only_one_asked_for() {
    let vendor = Vendor::that(finds("ada").after(49));
    let hedge = Hedge::where_asks_are_free(vendor.clone(), FIXED);
    assert_eq!(ask_timed(&hedge).await, (found("ada"), 49));
    assert_eq!(vendor.asks(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_second_ask_wins_and_the_first_is_dropped() {
    let vendor = Vendor::that_first([hangs()], finds("ada").after(10));
    let hedge = Hedge::where_asks_are_free(vendor.clone(), FIXED);
    assert_eq!(ask_timed(&hedge).await, (found("ada"), 60));
    assert_eq!((vendor.asked_at(), vendor.under_way()), (vec![0, 50], 0));
}

#[tokio::test(start_paused = true)]
async fn the_first_ask_may_still_win_and_the_second_is_dropped() {
    let vendor = Vendor::that_first([knows_nobody().after(70)], hangs());
    let hedge = Hedge::where_asks_are_free(vendor.clone(), FIXED);
    assert_eq!(ask_timed(&hedge).await, (Told::Nobody, 70));
    assert_eq!((vendor.asks(), vendor.under_way()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_second_ask_needs_a_free_permit_and_returns_it() {
    let vendor = Vendor::that_first([finds("first").after(90)], finds("second").after(10));
    let permits = Permits::new(1, 0);
    let hedge = Hedge::where_asks_are_free(vendor.clone(), FIXED).within(permits.clone());
    let taken = permits.try_acquire();
    assert_eq!(ask_timed(&hedge).await, (found("first"), 90));
    assert_eq!(vendor.asks(), 1);

    drop(taken);
    vendor.now_does_first(hangs(), finds("second").after(10));
    assert_eq!(ask_timed(&hedge).await, (found("second"), 60));
    assert!(permits.try_acquire().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_delay_is_passed_on() {
    let vendor = Vendor::that_first([fails(VendorErrorKind::Unavailable).after(10)], finds("ada"));
    let hedge = Hedge::where_asks_are_free(vendor.clone(), FIXED);
    assert_eq!(ask_timed(&hedge).await, (Told::Fault(VendorErrorKind::Unavailable), 10));
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_one_ask_waits_for_the_answer_of_the_other() {
    let first_fails = Vendor::that_first([breaks().after(60)], finds("ada").after(100));
    assert_eq!(ask_timed(&Hedge::where_asks_are_free(first_fails, FIXED)).await, (found("ada"), 150));
    let second_fails = Vendor::that_first([finds("ada").after(100)], fails(VendorErrorKind::QueueFull));
    assert_eq!(ask_timed(&Hedge::where_asks_are_free(second_fails, FIXED)).await, (found("ada"), 100));
}

#[tokio::test(start_paused = true)]
async fn if_both_fail_the_first_failure_is_told() {
    let vendor = Vendor::that_first(
        [fails(VendorErrorKind::KeyRefused).after(60)],
        fails(VendorErrorKind::BadAnswer).after(30),
    );
    let hedge = Hedge::where_asks_are_free(vendor, FIXED);
    assert_eq!(ask_timed(&hedge).await, (Told::Fault(VendorErrorKind::KeyRefused), 80));
}

#[tokio::test(start_paused = true)]
async fn the_p95_is_learned_from_recent_answers() {
    let vendor = Vendor::that(finds("ada").after(100));
    let hedge = Hedge::where_asks_are_free(vendor.clone(), P95);
    for _ in 1..Hedge::RECENT_MIN {
        assert_eq!(ask(&hedge).await, found("ada"));
    }
    vendor.now_does(hangs());
    assert!(tokio::time::timeout(Duration::from_millis(499), ask(&hedge)).await.is_err());
    assert_eq!(vendor.asks(), Hedge::RECENT_MIN, "19 answers are too few to judge by");
    vendor.now_does(finds("ada").after(100));
    assert_eq!(ask(&hedge).await, found("ada"));
    // All 20 answers took 100 ms, so the second request is sent after 100 ms and not after the initial 500 ms.
    vendor.now_does(hangs());
    assert!(tokio::time::timeout(Duration::from_millis(99), ask(&hedge)).await.is_err());
    assert_eq!(vendor.asks(), Hedge::RECENT_MIN + 2);
    assert!(tokio::time::timeout(Duration::from_millis(101), ask(&hedge)).await.is_err());
    assert_eq!(vendor.asks(), Hedge::RECENT_MIN + 4);
}

#[tokio::test(start_paused = true)]
async fn by_the_p95_about_one_lookup_of_twenty_is_asked_twice_and_no_slow_tail_changes_that() {
    let vendor = Vendor::that(finds("ada"));
    let hedge = Hedge::where_asks_are_free(vendor.clone(), P95);
    let lookups = 2_000;
    for i in 0..lookups {
        // Answers take 100 to 200 ms, and one in ten takes 400 to 500 ms: more than the share that is hedged.
        let tail = if i % 10 == 9 { 300 } else { 0 };
        vendor.now_does(finds("ada").after(100 + tail + i * 37 % 101));
        assert_eq!(ask(&hedge).await, found("ada"));
    }
    let hedged = vendor.asks() as u64 - lookups;
    assert!((lookups * 2 / 100..lookups * 8 / 100).contains(&hedged), "{hedged}");
}

#[tokio::test(start_paused = true)]
async fn that_second_asks_spare_us_slow_answers_does_not_make_more_of_them() {
    let vendor = Vendor::that(finds("ada"));
    let hedge = Hedge::where_asks_are_free(vendor.clone(), P95);
    let lookups = 2_000;
    for i in 0..lookups {
        // One first request in ten takes 2 s; a second request never does.
        let usual = 100 + i * 37 % 101;
        vendor.now_does_first(
            finds("ada").after(if i % 10 == 9 { 2_000 } else { usual }),
            finds("ada").after(usual),
        );
        assert_eq!(ask(&hedge).await, found("ada"));
    }
    let hedged = vendor.asks() as u64 - lookups;
    assert!(hedged < lookups * 11 / 100, "{hedged}");
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_becomes_slower_is_not_asked_twice_for_long() {
    let vendor = Vendor::that(finds("ada").after(100));
    let hedge = Hedge::where_asks_are_free(vendor.clone(), P95);
    for _ in 0..Hedge::RECENT_MAX {
        ask(&hedge).await;
    }
    vendor.now_does(finds("ada").after(200));
    for _ in 0..Hedge::RECENT_MAX {
        ask(&hedge).await;
    }
    let hedged = vendor.asks() - 2 * Hedge::RECENT_MAX;
    assert!(hedged < 10, "{hedged}");
}

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_it_leaves_nothing() {
    let vendor = Vendor::that(hangs());
    let hedge = Hedge::where_asks_are_free(vendor.clone(), FIXED);
    drop_at_each_ms(&hedge, 60, |ms| assert_eq!(vendor.under_way(), 0, "{ms}")).await;
}
