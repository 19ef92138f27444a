//! Single faults, and the reply that the specification or the design requires for each. Every run also checks
//! all invariants.

use std::time::Duration;

use enrich_lib::credit::Settlement;
use enrich_lib::window::Quota;
use enrich_sim::{
    DiskFault, Event, FaultKind, HttpVersion, Link, Peer, Plan, PortCall, RequestKind, Run, VendorFault,
    World, seeds,
};

const SEEDS: u64 = 5;

const START: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// Runs the plan with a few seeds, so that the result does not depend on the latency of single calls.
fn for_each_seed(plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        check(World::with_plan(plan(Plan::empty(seed))).run().check());
    }
}

/// Returns the status of the first client's first reply.
fn status(run: &Run) -> Option<u16> {
    run.statuses()[0]
}

#[test]
fn replies_to_every_request_without_faults() {
    let with_requests = |plan: Plan| {
        plan.request(RequestKind::Known).request(RequestKind::Unknown).request(RequestKind::NoKey)
    };
    for_each_seed(with_requests, |run| {
        assert_eq!(run.statuses()[..3], [Some(200), Some(404), Some(401)]);
        assert_eq!((run.balance().spent, run.balance().held), (1, 0));
    });
}

#[test]
fn releases_hold_when_vendor_fails() {
    for_each_seed(|plan| with_vendor_fault(plan, VendorFault::Error), assert_502_with_release);
}

#[test]
fn releases_hold_when_vendor_hangs() {
    for_each_seed(|plan| with_vendor_fault(plan, VendorFault::Hang), assert_502_with_release);
}

#[test]
fn releases_hold_when_vendor_response_is_truncated() {
    for_each_seed(|plan| with_vendor_fault(plan, VendorFault::Truncated), assert_502_with_release);
}

#[test]
fn releases_hold_when_vendor_responds_after_deadline() {
    for_each_seed(|plan| with_vendor_fault(plan, VendorFault::Delay(11 * SECOND)), assert_502_with_release);
}

#[test]
fn releases_hold_when_vendor_is_unreachable() {
    let partition = FaultKind::Partition(Link { peer: Peer::Vendor, node: 0 });
    for_each_seed(
        |plan| plan.fault(START, 12 * SECOND, partition.clone()).request(RequestKind::Known),
        assert_502_with_release,
    );
}

fn with_vendor_fault(plan: Plan, fault: VendorFault) -> Plan {
    plan.fault(START, 3 * SECOND, FaultKind::Vendor(fault, 1.0)).request(RequestKind::Known)
}

fn assert_502_with_release(run: Run) {
    assert_eq!(status(&run), Some(502));
    assert!(run.lookups()[0].has_called(PortCall::Settle(Settlement::Release)));
    assert_eq!((run.balance().spent, run.balance().held), (0, 0));
}

#[test]
fn spend_on_stalled_disk_gives_500_without_charge() {
    let slow = FaultKind::Vendor(VendorFault::Delay(2 * SECOND), 1.0);
    let with_faults = |plan: Plan| {
        plan.fault(START, SECOND, slow.clone()).fault(
            SECOND,
            12 * SECOND,
            FaultKind::Disk(0, DiskFault::Stall),
        )
    };
    for_each_seed(
        |plan| with_faults(plan).request(RequestKind::Known),
        |run| {
            assert_eq!(status(&run), Some(500));
            assert!(run.lookups()[0].has_called(PortCall::Settle(Settlement::Spend(1))));
            assert_eq!((run.balance().spent, run.balance().held), (0, 0));
        },
    );
}

#[test]
fn settles_hold_when_http1_client_hangs_up() {
    for_each_seed(|plan| with_hang_up(plan, HttpVersion::Http1), assert_lookup_finished);
}

#[test]
fn settles_hold_when_http2_client_hangs_up() {
    for_each_seed(|plan| with_hang_up(plan, HttpVersion::Http2), assert_lookup_finished);
}

/// The client hangs up after one second; the resolver takes four.
fn with_hang_up(plan: Plan, http: HttpVersion) -> Plan {
    let slow = FaultKind::Vendor(VendorFault::Delay(4 * SECOND), 1.0);
    plan.fault(START, 3 * SECOND, slow).request_to(0, RequestKind::Known, http, SECOND)
}

fn assert_lookup_finished(run: Run) {
    assert_eq!(status(&run), None);
    assert_eq!(run.lookups()[0].logged_statuses, [200]);
    assert_eq!((run.balance().spent, run.balance().held), (1, 0));
}

#[test]
fn hold_expires_when_node_crashes_during_lookup() {
    let hang = FaultKind::Vendor(VendorFault::Hang, 1.0);
    let crash = FaultKind::NodeCrash(0);
    let plan =
        |plan: Plan| plan.fault(START, 4 * SECOND, hang.clone()).fault(2 * SECOND, 4 * SECOND, crash.clone());
    for_each_seed(
        |empty| plan(empty).request(RequestKind::Known),
        |run| {
            assert_eq!(status(&run), None);
            let history = &run.lookups()[0];
            assert!(history.is_interrupted && history.has_called(PortCall::Resolve));
            assert_eq!((run.balance().spent, run.balance().held), (0, 0));
        },
    );
}

#[test]
fn crashed_ledger_loses_holds_and_keeps_spends() {
    let hang = FaultKind::Vendor(VendorFault::Hang, 1.0);
    let plan = |plan: Plan| {
        let plan = plan.fault(2 * SECOND, 6 * SECOND, hang.clone()).fault(
            5 * SECOND,
            6 * SECOND,
            FaultKind::NodeCrash(0),
        );
        let mut plan = plan.request(RequestKind::Known).request(RequestKind::Known);
        plan.clients[0][1].pause = 3 * SECOND;
        plan
    };
    for_each_seed(plan, |run| {
        assert_eq!(run.statuses()[..2], [Some(200), None]);
        assert_eq!((run.balance().spent, run.balance().held), (1, 0));
    });
}

#[test]
fn node_that_stops_answers_the_lookup_in_flight_and_announces_the_close() {
    let slow = FaultKind::Vendor(VendorFault::Delay(3 * SECOND), 1.0);
    let with_faults = |plan: Plan| {
        plan.fault(START, SECOND, slow.clone()).fault(SECOND, 2 * SECOND, FaultKind::Shutdown(0))
    };
    for_each_seed(
        |plan| with_faults(plan).request(RequestKind::Known),
        |run| {
            assert_eq!(status(&run), Some(200));
            let replies = run.trace.iter().filter_map(|entry| match &entry.event {
                Event::ReplyReceived(0, reply) => Some(reply),
                _ => None,
            });
            let is_close = |(name, value): &(String, String)| name == "connection" && value == "close";
            assert!(replies.clone().all(|reply| reply.headers.iter().any(is_close)), "{replies:?}");
            assert_eq!((run.balance().spent, run.balance().held), (1, 0));
        },
    );
}

#[test]
fn replaced_sources_do_not_affect_the_lookup_in_flight() {
    let slow = FaultKind::Vendor(VendorFault::Delay(3 * SECOND), 1.0);
    let with_faults =
        |plan: Plan| plan.fault(START, SECOND, slow.clone()).fault(SECOND, 2 * SECOND, FaultKind::Reload(0));
    for_each_seed(
        |plan| with_faults(plan).request(RequestKind::Known),
        |run| assert_eq!((status(&run), run.balance().spent), (Some(200), 1)),
    );
}

/// The disk stalls until all lookups wait for their spends, so that one transaction has all of them.
#[test]
fn crowd_is_served_in_one_batch() {
    let plan = |mut plan: Plan| {
        plan.credits = 200;
        plan.crowd = Some(0);
        plan = plan.fault(START, 4 * SECOND, FaultKind::Disk(0, DiskFault::Stall));
        (0..200).fold(plan, |plan, _| plan.request(RequestKind::Known))
    };
    for_each_seed(plan, |run| {
        assert!(run.statuses()[..200].iter().all(|status| *status == Some(200)));
        assert_eq!((run.balance().spent, run.balance().available), (200, 0));
    });
}

/// Two minutes are two windows further on or back. The clock is right at first, wrong for a while, and right
/// again.
#[test]
fn window_admits_its_limit_once_when_the_clock_returns_to_it() {
    for wrong_ms in [120_000, -120_000] {
        let plan = |mut plan: Plan| {
            plan.quota = Quota::new(2, 60).unwrap();
            let mut plan = (0..9).fold(plan, |plan, _| plan.request(RequestKind::InvalidEmail));
            plan.clients[0][3].pause = 2 * SECOND;
            plan.clients[0][6].pause = 2 * SECOND;
            plan.fault(SECOND, 3 * SECOND, FaultKind::WrongClock(0, wrong_ms))
        };
        for_each_seed(plan, |run| {
            let expected = [400, 400, 429, 400, 400, 429, 429, 429, 429].map(Some);
            assert_eq!(run.statuses()[..9], expected, "{wrong_ms} ms");
        });
    }
}

#[test]
fn wrong_clock_keeps_the_hold_of_the_lookup_in_flight() {
    for wrong_ms in [3_600_000, -3_600_000] {
        let slow = FaultKind::Vendor(VendorFault::Delay(4 * SECOND), 1.0);
        let plan = |plan: Plan| {
            let plan = plan.fault(START, SECOND, slow.clone());
            let plan = plan.fault(SECOND, 9 * SECOND, FaultKind::WrongClock(0, wrong_ms));
            let mut plan = plan.request(RequestKind::Known).request(RequestKind::Known);
            plan.clients[0][1].pause = SECOND;
            plan
        };
        for_each_seed(plan, |run| {
            assert_eq!(run.statuses()[..2], [Some(200), Some(200)]);
            assert_eq!((run.balance().spent, run.balance().held), (2, 0));
        });
    }
}

#[test]
fn revoked_key_is_refused_after_one_second() {
    let plan = |plan: Plan| {
        let mut plan = plan.request(RequestKind::Known).request(RequestKind::Known);
        plan.clients[0][1].pause = 4 * SECOND;
        plan.fault(2 * SECOND, 3 * SECOND, FaultKind::KeyRevocation)
    };
    for_each_seed(plan, |run| assert_eq!(run.statuses()[..2], [Some(200), Some(401)]));
}
