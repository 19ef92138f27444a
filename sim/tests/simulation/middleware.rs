//! Nodes with two contracts with a failing vendor, low limits and a cache. Every run also checks all
//! invariants.

use std::time::Duration;

use enrich_sim::{
    Event, FaultKind, Link, Peer, Plan, PortCall, PortResult, RequestKind, Run, VendorFault, World, seeds,
};

const SEEDS: u64 = 20;

/// The vendor requests of the prober.
const PROBES: usize = 1;

const SECOND: Duration = Duration::from_secs(1);

fn for_each_seed(plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        let mut plan = plan(Plan::empty(seed));
        plan.has_middleware = true;
        check(World::with_plan(plan).run().check());
    }
}

/// Returns the number of requests that the vendor received.
fn vendor_requests(run: &Run) -> usize {
    run.trace.iter().filter(|entry| matches!(entry.event, Event::VendorCalled(..))).count()
}

#[test]
fn breaker_opens_while_vendor_fails_and_closes_after_recovery() {
    let fails = FaultKind::Vendor(VendorFault::Error, 1.0);
    let with_requests = |plan: Plan| (0..12).fold(plan, |plan, _| plan.request(RequestKind::Known));
    for_each_seed(
        |plan| with_requests(plan).fault(Duration::ZERO, 12 * SECOND, fails.clone()),
        |run| {
            let statuses = run.statuses();
            assert!(statuses[..12].contains(&Some(502)), "{statuses:?}");
            // Without the breaker each lookup would make six requests: three tries under each of two names.
            assert!(vendor_requests(&run) < 6 * 12, "{} requests", vendor_requests(&run));
            assert!(statuses[12..].iter().all(|status| *status == Some(200)), "{statuses:?}");
        },
    );
}

#[test]
fn concurrent_lookups_of_one_person_share_a_request_and_both_spend() {
    // So slow that the second lookup starts before the first one has its response.
    let slow = FaultKind::Latency(Link { peer: Peer::Vendor, node: 0 }, Duration::from_millis(60));
    let pause = Duration::from_millis(10);
    for_each_seed(
        |plan| {
            let plan = plan.request_shared_person(0, pause).request_shared_person(1, pause);
            plan.fault(Duration::ZERO, 3 * SECOND, slow.clone())
        },
        |run| {
            assert_eq!(run.statuses()[..2], [Some(200); 2]);
            assert_eq!((run.balance().spent, vendor_requests(&run)), (2, 1 + PROBES));
            assert_eq!(resolver_events(&run)[..4], [CALLED, CALLED, FOUND, FOUND]);
        },
    );
}

#[test]
fn cached_profile_is_billed_and_requested_again_after_its_ttl() {
    let (short_pause, long_pause) = (Duration::from_millis(10), 3 * SECOND);
    for_each_seed(
        |plan| {
            plan.request_shared_person(0, short_pause)
                .request_shared_person(0, short_pause)
                .request_shared_person(0, long_pause)
        },
        |run| {
            assert_eq!(run.statuses()[..3], [Some(200); 3]);
            assert_eq!((run.balance().spent, vendor_requests(&run)), (3, 2 + PROBES));
        },
    );
}

const CALLED: &str = "called";
const FOUND: &str = "found";

/// Returns the resolver's calls and found profiles, in order.
fn resolver_events(run: &Run) -> Vec<&'static str> {
    let name = |event: &Event| match event {
        Event::PortCalled(_, PortCall::Resolve) => Some(CALLED),
        Event::PortReturned(_, PortResult::ProfileFound(true)) => Some(FOUND),
        _ => None,
    };
    run.trace.iter().filter_map(|entry| name(&entry.event)).collect()
}
