use std::sync::Arc;
use std::time::Duration;

use enrich_middleware::{Breaker, BreakerPolicy, VendorErrorKind};
use tokio::time::{sleep, timeout};

use crate::scripted::{
    Told, Vendor, ada, ask, ask_timed, breaks, drop_at_each_ms, fails, finds, found, hangs, knows_nobody,
    start,
};
use enrich_lib::ports::Resolver;

const PAUSE: Duration = Duration::from_secs(30);
const POLICY: BreakerPolicy =
    BreakerPolicy { window_calls: 10, calls_min: 4, failure_rate: 0.5, pause: PAUSE, probes: 2 };
const OPEN: Told = Told::Fault(VendorErrorKind::BreakerOpen);

fn breaker(vendor: &Arc<Vendor>) -> Arc<Breaker> {
    Arc::new(Breaker::new(vendor.clone(), POLICY))
}

/// Returns a breaker that has just opened, around a vendor that finds Ada from now on.
async fn opened() -> (Arc<Vendor>, Arc<Breaker>) {
    let vendor = Vendor::that(fails(VendorErrorKind::Unavailable));
    let breaker = breaker(&vendor);
    for _ in 0..4 {
        assert_eq!(ask(&*breaker).await, Told::Fault(VendorErrorKind::Unavailable));
    }
    assert_eq!(ask(&*breaker).await, OPEN);
    vendor.now_does(finds("ada"));
    (vendor, breaker)
}

#[tokio::test(start_paused = true)]
async fn it_opens_when_enough_calls_failed_and_then_fails_at_once() {
    let (vendor, breaker) = opened().await;
    assert_eq!(ask_timed(&*breaker).await, (OPEN, 0));
    assert_eq!(vendor.asks(), 4);
}

#[tokio::test(start_paused = true)]
async fn below_the_least_number_of_calls_it_stays_closed() {
    let vendor = Vendor::that_first((0..3).map(|_| breaks()), finds("ada"));
    let breaker = breaker(&vendor);
    for _ in 0..3 {
        ask(&*breaker).await;
    }
    assert_eq!(ask(&*breaker).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn below_the_rate_it_stays_closed() {
    let script = (0..40).map(|i| if i % 5 > 2 { fails(VendorErrorKind::BadAnswer) } else { finds("ada") });
    let vendor = Vendor::that_first(script, finds("ada"));
    let breaker = breaker(&vendor);
    for _ in 0..40 {
        assert_ne!(ask(&*breaker).await, OPEN);
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_last_calls_count() {
    let script = (0..105).map(|i| if i < 100 { finds("ada") } else { breaks() });
    let vendor = Vendor::that_first(script, finds("ada"));
    let breaker = breaker(&vendor);
    for _ in 0..105 {
        assert_ne!(ask(&*breaker).await, OPEN);
    }
    assert_eq!(ask(&*breaker).await, OPEN, "five of the last ten failed");
}

#[tokio::test(start_paused = true)]
async fn no_match_is_a_success() {
    let breaker = breaker(&Vendor::that(knows_nobody()));
    for _ in 0..50 {
        assert_eq!(ask(&*breaker).await, Told::Nobody);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_vendors_does_not_count() {
    for kind in [
        VendorErrorKind::BadRequest,
        VendorErrorKind::QueueFull,
        VendorErrorKind::QueueTimeout,
        VendorErrorKind::TooManyOpenFiles,
    ] {
        let breaker = breaker(&Vendor::that(fails(kind)));
        for _ in 0..50 {
            assert_eq!(ask(&*breaker).await, Told::Fault(kind));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_does_not_count() {
    let vendor = Vendor::that(hangs());
    let breaker = breaker(&vendor);
    for _ in 0..50 {
        assert!(timeout(Duration::from_secs(1), breaker.find(&ada())).await.is_err());
    }
    vendor.now_does(finds("ada"));
    assert_eq!(ask(&*breaker).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_it_began_does_not_count() {
    let breaker = breaker(&Vendor::that(finds("ada")));
    for _ in 0..50 {
        drop(breaker.find(&ada()));
    }
    assert_eq!(ask(&*breaker).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn it_stays_open_for_the_pause_and_closes_when_its_probes_succeed() {
    let (vendor, breaker) = opened().await;
    sleep(PAUSE - Duration::from_millis(1)).await;
    assert_eq!(ask(&*breaker).await, OPEN);
    sleep(Duration::from_millis(1)).await;
    for _ in 0..2 {
        assert_eq!(ask(&*breaker).await, found("ada"));
    }
    // Closed, with an empty window: three failures are too few to open it again.
    vendor.now_does(breaks());
    for _ in 0..3 {
        assert_ne!(ask(&*breaker).await, OPEN);
    }
    vendor.now_does(finds("ada"));
    assert_eq!(ask(&*breaker).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn half_open_it_lets_few_probes_through() {
    let (vendor, breaker) = opened().await;
    vendor.now_does(finds("ada").after(100));
    sleep(PAUSE).await;
    let probes = [start(&breaker).await, start(&breaker).await];
    assert_eq!(ask_timed(&*breaker).await, (OPEN, 0));
    assert_eq!(vendor.under_way(), 2);
    for probe in probes {
        assert_eq!(probe.await.unwrap(), found("ada"));
    }
    assert_eq!(ask(&*breaker).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_opens_it_for_another_pause() {
    let (vendor, breaker) = opened().await;
    vendor.now_does(breaks());
    sleep(PAUSE).await;
    assert_ne!(ask(&*breaker).await, OPEN);
    vendor.now_does(finds("ada"));
    assert_eq!(ask(&*breaker).await, OPEN);
    sleep(PAUSE).await;
    assert_eq!(ask(&*breaker).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_dropped_returns_its_slot() {
    let (vendor, breaker) = opened().await;
    sleep(PAUSE).await;
    for _ in 0..5 {
        vendor.now_does(hangs());
        let probes = [start(&breaker).await, start(&breaker).await];
        assert_eq!(vendor.under_way(), 2);
        for probe in probes {
            probe.abort();
            assert!(probe.await.is_err());
        }
        assert_eq!(vendor.under_way(), 0);
    }
    vendor.now_does(finds("ada"));
    for _ in 0..10 {
        assert_eq!(ask(&*breaker).await, found("ada"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_tells_nothing_gives_its_slot_back() {
    let (vendor, breaker) = opened().await;
    vendor.now_does(fails(VendorErrorKind::BadRequest));
    sleep(PAUSE).await;
    for _ in 0..10 {
        assert_eq!(ask(&*breaker).await, Told::Fault(VendorErrorKind::BadRequest));
    }
    vendor.now_does(breaks());
    ask(&*breaker).await;
    assert_eq!(ask(&*breaker).await, OPEN, "nothing had closed it");
}

#[tokio::test(start_paused = true)]
async fn a_call_from_before_the_last_change_tells_nothing_new() {
    let slow_failure = || fails(VendorErrorKind::Unavailable).after(PAUSE.as_millis() as u64 + 500);
    let vendor = Vendor::that_first((0..8).map(|_| slow_failure()), breaks());
    let breaker = breaker(&vendor);
    let mut slow = Vec::new();
    for _ in 0..8 {
        slow.push(start(&breaker).await);
    }
    for _ in 0..4 {
        ask(&*breaker).await;
    }
    assert_eq!(ask(&*breaker).await, OPEN);
    vendor.now_does(finds("ada"));
    sleep(PAUSE).await;
    for _ in 0..2 {
        assert_eq!(ask(&*breaker).await, found("ada"));
    }
    for call in slow {
        assert_eq!(call.await.unwrap(), Told::Fault(VendorErrorKind::Unavailable));
    }
    assert_eq!(ask(&*breaker).await, found("ada"), "their failures are old news");
}

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_it_leaves_nothing() {
    let vendor = Vendor::that(finds("ada").after(20));
    let policy = BreakerPolicy { pause: Duration::ZERO, probes: 1, ..POLICY };
    let breaker = Breaker::new(vendor.clone(), policy);
    for _ in 0..3 {
        drop_at_each_ms(&breaker, 25, |ms| assert_eq!(vendor.under_way(), 0, "{ms}")).await;
    }
    vendor.now_does(finds("ada"));
    for _ in 0..10 {
        assert_eq!(ask(&breaker).await, found("ada"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_nothing_opens_at_the_first_failure_and_closes_at_the_first_success() {
    let policy =
        BreakerPolicy { window_calls: 0, calls_min: 0, failure_rate: 0.5, pause: Duration::ZERO, probes: 0 };
    let vendor = Vendor::that_first([breaks()], finds("ada"));
    let breaker = Breaker::new(vendor, policy);
    ask(&breaker).await;
    assert_eq!(ask(&breaker).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn a_pause_without_end_does_not_end() {
    let policy = BreakerPolicy { pause: Duration::MAX, ..POLICY };
    let breaker = Breaker::new(Vendor::that(breaks()), policy);
    for _ in 0..4 {
        ask(&breaker).await;
    }
    sleep(Duration::from_secs(1_000_000)).await;
    assert_eq!(ask(&breaker).await, OPEN);
}
