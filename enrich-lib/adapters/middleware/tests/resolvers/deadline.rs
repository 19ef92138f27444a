use std::time::Duration;

use enrich_middleware::{Deadline, VendorErrorKind};

use crate::scripted::{Told, Vendor, ask_timed, drop_at_each_ms, fails, finds, found, hangs};

const BUDGET: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn an_answer_or_a_failure_in_time_is_passed_on() {
    let vendor = Vendor::that_first([finds("ada").after(99)], fails(VendorErrorKind::KeyRefused).after(5));
    let deadline = Deadline::new(vendor, BUDGET);
    assert_eq!(ask_timed(&deadline).await, (found("ada"), 99));
    assert_eq!(ask_timed(&deadline).await, (Told::Fault(VendorErrorKind::KeyRefused), 5));
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_hangs_is_dropped_at_the_end_of_the_budget() {
    let vendor = Vendor::that(hangs());
    let deadline = Deadline::new(vendor.clone(), BUDGET);
    assert_eq!(ask_timed(&deadline).await, (Told::Fault(VendorErrorKind::TimedOut), 100));
    assert_eq!((vendor.asks(), vendor.under_way()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_never_comes_is_no_deadline() {
    let deadline = Deadline::new(Vendor::that(finds("ada").after(60_000)), Duration::MAX);
    assert_eq!(ask_timed(&deadline).await, (found("ada"), 60_000));
}

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_it_leaves_nothing() {
    let vendor = Vendor::that(hangs());
    let deadline = Deadline::new(vendor.clone(), BUDGET);
    drop_at_each_ms(&deadline, 110, |ms| assert_eq!(vendor.under_way(), 0, "{ms}")).await;
}
