//! Nodes with two contracts with a vendor, low limits and a cache.

use std::time::Duration;

use enrich_sim::{FaultKind, Plan, RequestKind, VendorFault};

use super::{VENDOR, case, known, on_sqlite, requests, vendor};

fn with_middleware(seed: u64) -> Plan {
    let mut plan = on_sqlite(seed);
    plan.has_middleware = true;
    plan
}

/// Adds requests for one person: the client, and the milliseconds since its previous one.
fn for_one_person(plan: Plan, requests: &[(usize, u64)]) -> Plan {
    let request = |plan: Plan, (client, pause): &(usize, u64)| {
        plan.request_shared_person(*client, Duration::from_millis(*pause))
    };
    requests.iter().fold(plan, request)
}

#[test]
fn each_fault_of_a_vendor_has_its_replies() {
    let one = |seed| known(with_middleware(seed), &[(0, 0.01)]);
    case(one, &[(0.0, 10.0, FaultKind::Vendor(VendorFault::Error, 0.3))], &[200], 1).check();
    case(one, &[(0.0, 12.0, vendor(VendorFault::Hang))], &[502], 0).check();
    case(one, &[(0.0, 12.0, vendor(VendorFault::Error))], &[502], 0).with_vendor_requests(6..=6).check();
    let opted_out = |seed| requests(with_middleware(seed), RequestKind::OptedOut, &[(0, 0.01, 30.0)]);
    case(opted_out, &[], &[404], 0).check();
}

/// The vendor is so slow that the second lookup starts before the first one has its response.
#[test]
fn concurrent_lookups_of_one_person_share_a_request_and_both_spend() {
    let plan = |seed| for_one_person(with_middleware(seed), &[(0, 10), (1, 10)]);
    let slow = FaultKind::Latency(VENDOR, Duration::from_millis(60));
    case(plan, &[(0.0, 3.0, slow)], &[200; 2], 2).with_vendor_requests(1..=1).check();
}

#[test]
fn cached_profile_is_billed_and_requested_again_after_its_ttl() {
    let plan = |seed| for_one_person(with_middleware(seed), &[(0, 10), (0, 10), (0, 3_000)]);
    case(plan, &[], &[200; 3], 3).with_vendor_requests(2..=2).check();
}
