use std::sync::Arc;
use std::time::Duration;

use enrich_compose::{FaultKind, Limit};
use tokio::time::sleep;

use crate::scripted::{Told, Vendor, ask, ask_timed, drop_at_each_ms, finds, found, hangs, start};

#[tokio::test(start_paused = true)]
async fn no_more_ask_at_once_than_allowed_and_the_queue_is_served() {
    let vendor = Vendor::that(finds("ada").after(100));
    let limit = Arc::new(Limit::new(vendor.clone(), 3, 100));
    let mut lookups = Vec::new();
    for _ in 0..10 {
        lookups.push(start(&limit).await);
    }
    for lookup in lookups {
        assert_eq!(lookup.await.unwrap(), found("ada"));
    }
    assert_eq!((vendor.under_way_max(), vendor.asks()), (3, 10));
    assert_eq!(vendor.asked_at(), [0, 0, 0, 100, 100, 100, 200, 200, 200, 300]);
}

#[tokio::test(start_paused = true)]
async fn who_finds_the_queue_full_fails_at_once() {
    let vendor = Vendor::that(finds("ada").after(100));
    let limit = Arc::new(Limit::new(vendor.clone(), 2, 1));
    let lookups = [start(&limit).await, start(&limit).await, start(&limit).await];
    assert_eq!(ask_timed(&*limit).await, (Told::Fault(FaultKind::QueueFull), 0));
    assert_eq!(vendor.asks(), 2);
    for lookup in lookups {
        assert_eq!(lookup.await.unwrap(), found("ada"));
    }
    assert_eq!(ask(&*limit).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_is_dropped_in_the_queue_frees_its_place() {
    let vendor = Vendor::that(hangs());
    let limit = Arc::new(Limit::new(vendor.clone(), 1, 1));
    let (asks, waits) = (start(&limit).await, start(&limit).await);
    assert_eq!(ask(&*limit).await, Told::Fault(FaultKind::QueueFull));

    waits.abort();
    let waits = start(&limit).await;
    vendor.now_does(finds("ada"));
    asks.abort();
    assert_eq!(waits.await.unwrap(), found("ada"), "its permit went to who waited");
}

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_it_leaves_nothing() {
    let vendor = Vendor::that(finds("ada").after(30));
    let limit = Arc::new(Limit::new(vendor.clone(), 1, 1));
    for ms in 0..70 {
        let asks = start(&limit).await;
        let waits = start(&limit).await;
        sleep(Duration::from_millis(ms)).await;
        waits.abort();
        asks.abort();
        let _ = (asks.await, waits.await);
        assert_eq!(format!("{limit:?}"), "Limit { asks_left: 1, places_left: 2, .. }", "{ms}");
        assert_eq!(vendor.under_way(), 0);
    }
    drop_at_each_ms(&*limit, 40, |ms| assert_eq!(vendor.under_way(), 0, "{ms}")).await;
    assert_eq!(format!("{limit:?}"), "Limit { asks_left: 1, places_left: 2, .. }");
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_nothing_is_a_limit_of_one() {
    assert_eq!(ask(&Limit::new(Vendor::that(finds("ada")), 0, 0)).await, found("ada"));
    assert_eq!(ask(&Limit::new(Vendor::that(finds("ada")), usize::MAX, usize::MAX)).await, found("ada"));
}
