use std::time::Duration;

use enrich_lib::resolver::VendorErrorKind;
use enrich_middleware::Deadline;

use crate::scripted::{LookupResult, Vendor, drop_at_each_ms, fails, finds, found, hangs, look_up_timed};

const BUDGET: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn returns_result_within_budget() {
    let vendor = Vendor::scripted([finds("ada").after(99)], fails(VendorErrorKind::KeyRejected).after(5));
    let deadline = Deadline::new(vendor, BUDGET);
    assert_eq!(look_up_timed(&deadline).await, (found("ada"), 99));
    assert_eq!(look_up_timed(&deadline).await, (LookupResult::VendorError(VendorErrorKind::KeyRejected), 5));
}

#[tokio::test(start_paused = true)]
async fn drops_call_at_end_of_budget() {
    let vendor = Vendor::new(hangs());
    let deadline = Deadline::new(vendor.clone(), BUDGET);
    assert_eq!(look_up_timed(&deadline).await, (LookupResult::VendorError(VendorErrorKind::TimedOut), 100));
    assert_eq!((vendor.calls(), vendor.in_flight()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn infinite_budget_never_ends() {
    let deadline = Deadline::new(Vendor::new(finds("ada").after(60_000)), Duration::MAX);
    assert_eq!(look_up_timed(&deadline).await, (found("ada"), 60_000));
}

#[tokio::test(start_paused = true)]
async fn dropped_lookup_leaves_no_call_in_flight() {
    let vendor = Vendor::new(hangs());
    let deadline = Deadline::new(vendor.clone(), BUDGET);
    drop_at_each_ms(&deadline, 110, |ms| assert_eq!(vendor.in_flight(), 0, "{ms}")).await;
}
