use std::time::Duration;

use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::Deadline;

use crate::scripted::{LookupResult, Vendor, fails, finds, found, hangs, look_up_timed};

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
