use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{ConcurrencyLimit, Permits};
use proptest::prelude::*;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::scripted::{
    LookupResult, Vendor, drop_at_each_ms, finds, found, hangs, look_up, look_up_timed, query_of, settle,
    start,
};

const WAIT_MAX: Duration = Duration::from_secs(3_600);

fn limit(vendor: &Arc<Vendor>, permits: usize, queue: usize) -> Arc<ConcurrencyLimit> {
    Arc::new(ConcurrencyLimit::new(vendor.clone(), Permits::new(permits, queue), WAIT_MAX))
}

/// Starts a lookup of `workspace` and runs it as far as possible without advancing time.
async fn start_for(limit: &Arc<ConcurrencyLimit>, workspace: &'static str) -> JoinHandle<LookupResult> {
    let limit = limit.clone();
    let lookup = tokio::spawn(async move {
        LookupResult::from(&limit.find(&query_of(workspace, "ada.marlowe@gmail.com")).await)
    });
    settle().await;
    lookup
}

fn assert_unused(limit: &ConcurrencyLimit, permits: usize) {
    let state = format!("{limit:?}");
    assert!(state.contains(&format!("Permits {{ free: {permits}, waiting: 0 }}")), "{state}");
}

#[tokio::test(start_paused = true)]
async fn limits_concurrent_lookups_to_permits() {
    let vendor = Vendor::new(finds("ada").after(100));
    let limit = limit(&vendor, 3, 100);
    let mut lookups = Vec::new();
    for _ in 0..10 {
        lookups.push(start(&limit).await);
    }
    for lookup in lookups {
        assert_eq!(lookup.await.unwrap(), found("ada"));
    }
    assert_eq!((vendor.in_flight_max(), vendor.calls()), (3, 10));
    assert_eq!(vendor.call_times_ms(), [0, 0, 0, 100, 100, 100, 200, 200, 200, 300]);
    assert_unused(&limit, 3);
}

#[tokio::test(start_paused = true)]
async fn fails_at_once_when_queue_is_full() {
    let vendor = Vendor::new(finds("ada").after(100));
    let limit = limit(&vendor, 2, 1);
    let lookups = [start(&limit).await, start(&limit).await, start(&limit).await];
    assert_eq!(look_up_timed(&*limit).await, (LookupResult::VendorError(VendorErrorKind::QueueFull), 0));
    assert_eq!(vendor.calls(), 2);
    for lookup in lookups {
        assert_eq!(lookup.await.unwrap(), found("ada"));
    }
    assert_eq!(look_up(&*limit).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn fails_lookup_that_waits_too_long() {
    let vendor = Vendor::new(hangs());
    let limit =
        Arc::new(ConcurrencyLimit::new(vendor.clone(), Permits::new(1, 10), Duration::from_millis(200)));
    let first = start(&limit).await;
    assert_eq!(look_up_timed(&*limit).await, (LookupResult::VendorError(VendorErrorKind::QueueTimeout), 200));
    first.abort();
    assert!(first.await.is_err());
    assert_unused(&limit, 1);
    assert_eq!(vendor.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn serves_waiting_workspaces_round_robin() {
    let vendor = Vendor::new(finds("ada").after(100));
    let limit = limit(&vendor, 1, 3);
    let mut lookups = Vec::new();
    for workspace in ["a", "a", "a", "a", "b", "b", "c"] {
        lookups.push(start_for(&limit, workspace).await);
    }
    let full = start_for(&limit, "a").await.await.unwrap();
    assert_eq!(full, LookupResult::VendorError(VendorErrorKind::QueueFull), "each workspace has a queue");
    for lookup in lookups {
        assert_eq!(lookup.await.unwrap(), found("ada"));
    }
    assert_eq!(vendor.called_workspaces(), ["a", "a", "b", "c", "a", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn lookup_dropped_in_queue_frees_its_place() {
    let vendor = Vendor::new(hangs());
    let limit = limit(&vendor, 1, 1);
    let (calls, waits) = (start(&limit).await, start(&limit).await);
    assert_eq!(look_up(&*limit).await, LookupResult::VendorError(VendorErrorKind::QueueFull));

    waits.abort();
    let waits = start(&limit).await;
    vendor.set_behavior(finds("ada"));
    calls.abort();
    assert_eq!(waits.await.unwrap(), found("ada"), "its permit went to the waiting lookup");
}

#[tokio::test(start_paused = true)]
async fn permit_of_dropped_lookup_goes_to_next_waiter() {
    let vendor = Vendor::new(hangs());
    let limit = limit(&vendor, 1, 2);
    let first = start(&limit).await;
    // Polled manually, so that it does not run between the grant and the drop.
    let query = query_of("demo", "ada.marlowe@gmail.com");
    let mut second = limit.find(&query);
    assert!(timeout(Duration::ZERO, &mut second).await.is_err());
    let third = start(&limit).await;
    vendor.set_behavior(finds("ada"));
    first.abort();
    settle().await;
    drop(second);
    assert_eq!(third.await.unwrap(), found("ada"));
    assert_unused(&limit, 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_lookup_releases_its_permit() {
    let vendor = Vendor::new(finds("ada").after(30));
    let limit = limit(&vendor, 1, 1);
    for ms in 0..70 {
        let calls = start(&limit).await;
        let waits = start(&limit).await;
        sleep(Duration::from_millis(ms)).await;
        waits.abort();
        calls.abort();
        let _ = (calls.await, waits.await);
        assert_unused(&limit, 1);
        assert_eq!(vendor.in_flight(), 0);
    }
    drop_at_each_ms(&*limit, 40, |ms| assert_eq!(vendor.in_flight(), 0, "{ms}")).await;
    assert_unused(&limit, 1);
}

#[tokio::test(start_paused = true)]
async fn raises_zero_permits_to_one() {
    assert_eq!(look_up(&*limit(&Vendor::new(finds("ada")), 0, 0)).await, found("ada"));
    assert_eq!(look_up(&*limit(&Vendor::new(finds("ada")), usize::MAX, usize::MAX)).await, found("ada"));
}

/// A lookup of one of three workspaces: its start, the workspace, and when it is dropped, if at all.
fn lookups() -> impl Strategy<Value = Vec<(u64, &'static str, Option<u64>)>> {
    let workspace = prop::sample::select(vec!["a", "b", "c"]);
    let dropped_after = prop::option::weighted(0.3, 0..60_u64);
    prop::collection::vec((0..100_u64, workspace, dropped_after), 1..40)
}

proptest! {
    #[test]
    fn keeps_limit_and_releases_all_permits_for_random_arrivals(
        lookups in lookups(), permits in 1..4_usize, queue in 0..6_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let vendor = Vendor::new(finds("ada").after(10));
            let limit = limit(&vendor, permits, queue);
            let tasks = lookups.into_iter().map(|(at, workspace, dropped_after)| {
                let limit = limit.clone();
                tokio::spawn(async move {
                    sleep(Duration::from_millis(at)).await;
                    let query = query_of(workspace, "ada.marlowe@gmail.com");
                    let wait = dropped_after.map_or(WAIT_MAX, Duration::from_millis);
                    let found = timeout(wait, limit.find(&query)).await;
                    found.ok().map(|found| LookupResult::from(&found))
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                let result = task.await.unwrap();
                let is_expected = |result: &LookupResult| [found("ada"), LookupResult::VendorError(VendorErrorKind::QueueFull)].contains(result);
                assert!(result.is_none_or(|result| is_expected(&result)));
            }
            assert!(vendor.in_flight_max() <= permits);
            assert_unused(&limit, permits);
        });
    }
}
