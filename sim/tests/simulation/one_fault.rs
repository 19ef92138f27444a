//! Single faults, and the reply that the specification or the design requires for each. Every run also checks all
//! invariants.

use std::time::Duration;

use enrich_lib::credit::Settlement;
use enrich_sim::{
    FaultKind, HttpVersion, Link, Peer, Plan, Port, PortCall, PortFault, RequestKind, Run, Simulation,
    StoreKind, seeds,
};

const SEEDS: u64 = 5;

const START: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// Runs the plan with a few seeds, so that the result does not depend on the latency of single calls.
fn for_each_seed(plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        check(Simulation::run(&plan(Plan::empty(seed))).check());
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
fn releases_hold_when_resolver_fails() {
    for_each_seed(
        |plan| plan.port_fault(Port::Resolver, PortFault::Error).request(RequestKind::Known),
        assert_502_with_release,
    );
}

#[test]
fn releases_hold_when_resolver_hangs() {
    for_each_seed(
        |plan| plan.port_fault(Port::Resolver, PortFault::Hang).request(RequestKind::Known),
        assert_502_with_release,
    );
}

#[test]
fn releases_hold_when_vendor_fails() {
    for_each_seed(|plan| with_vendor_fault(plan, PortFault::Error), assert_502_with_release);
}

#[test]
fn releases_hold_when_vendor_hangs() {
    for_each_seed(|plan| with_vendor_fault(plan, PortFault::Hang), assert_502_with_release);
}

#[test]
fn releases_hold_when_vendor_response_is_truncated() {
    for_each_seed(|plan| with_vendor_fault(plan, PortFault::ResponseLost), assert_502_with_release);
}

#[test]
fn releases_hold_when_vendor_responds_after_deadline() {
    for_each_seed(|plan| with_vendor_fault(plan, PortFault::Delay(11 * SECOND)), assert_502_with_release);
}

#[test]
fn releases_hold_when_vendor_is_unreachable() {
    let partition = FaultKind::Partition(Link { peer: Peer::Vendor, node: 0 });
    for_each_seed(
        |plan| plan.fault(START, 12 * SECOND, partition.clone()).request(RequestKind::Known),
        assert_502_with_release,
    );
}

fn with_vendor_fault(plan: Plan, fault: PortFault) -> Plan {
    plan.fault(START, 3 * SECOND, FaultKind::Vendor(fault, 1.0)).request(RequestKind::Known)
}

fn assert_502_with_release(run: Run) {
    assert_eq!(status(&run), Some(502));
    assert!(run.lookups()[0].has_called(PortCall::Settle(Settlement::Release)));
    assert_eq!((run.balance().spent, run.balance().held), (0, 0));
}

#[test]
fn failing_windows_give_503_without_execution() {
    for_each_seed(
        |plan| plan.port_fault(Port::Windows, PortFault::Error).request(RequestKind::Known),
        assert_503_without_execution,
    );
}

#[test]
fn hanging_windows_give_503_without_execution() {
    for_each_seed(
        |plan| plan.port_fault(Port::Windows, PortFault::Hang).request(RequestKind::Known),
        assert_503_without_execution,
    );
}

#[test]
fn lost_count_response_gives_503_without_execution() {
    for_each_seed(
        |plan| plan.port_fault(Port::Windows, PortFault::ResponseLost).request(RequestKind::Known),
        assert_503_without_execution,
    );
}

fn assert_503_without_execution(run: Run) {
    assert_eq!(status(&run), Some(503));
    assert!(!run.lookups()[0].is_executed());
}

#[test]
fn failing_keys_give_500_without_count() {
    for_each_seed(
        |plan| plan.port_fault(Port::Keys, PortFault::Error).request(RequestKind::Known),
        assert_500_without_count,
    );
}

#[test]
fn hanging_keys_give_500_without_count() {
    for_each_seed(
        |plan| plan.port_fault(Port::Keys, PortFault::Hang).request(RequestKind::Known),
        assert_500_without_count,
    );
}

fn assert_500_without_count(run: Run) {
    assert_eq!(status(&run), Some(500));
    assert!(!run.lookups()[0].has_called(PortCall::CountRequest));
}

#[test]
fn hanging_hold_gives_500_without_charge() {
    let fault = FaultKind::Port(0, Port::Credits, PortFault::Hang, 1.0);
    for_each_seed(
        |plan| plan.fault(START, 8 * SECOND, fault.clone()).request(RequestKind::Known),
        |run| {
            assert_eq!(status(&run), Some(500));
            assert_eq!((run.balance().spent, run.balance().held), (0, 0));
        },
    );
}

#[test]
fn lost_hold_response_gives_500_and_hold_expires() {
    for_each_seed(
        |plan| plan.port_fault(Port::Credits, PortFault::ResponseLost).request(RequestKind::Known),
        |run| {
            assert_eq!(status(&run), Some(500));
            assert_eq!(run.lookups()[0].store_effects.len(), 1, "held, and never settled");
            assert_eq!((run.balance().spent, run.balance().held), (0, 0));
        },
    );
}

#[test]
fn spend_without_a_response_delays_the_reply() {
    // The resolver takes two seconds, so the fault starts after the hold is granted and before it is settled.
    let slow = FaultKind::Port(0, Port::Resolver, PortFault::Delay(2 * SECOND), 1.0);
    let lost = FaultKind::Port(0, Port::Credits, PortFault::ResponseLost, 1.0);
    let with_faults =
        |plan: Plan| plan.fault(START, SECOND, slow.clone()).fault(SECOND, 4 * SECOND, lost.clone());
    for_each_seed(
        |plan| with_faults(plan).request(RequestKind::Known),
        |run| {
            assert_eq!(status(&run), Some(200));
            assert_eq!((run.balance().spent, run.balance().held), (1, 0));
        },
    );
}

#[test]
fn spend_on_stalled_disk_gives_500_without_charge() {
    let slow = FaultKind::Port(0, Port::Resolver, PortFault::Delay(2 * SECOND), 1.0);
    let with_faults = |plan: Plan| {
        plan.fault(START, SECOND, slow.clone()).fault(SECOND, 12 * SECOND, FaultKind::DiskStall(0))
    };
    for_each_seed(
        |plan| with_faults(Plan { stores: StoreKind::Sqlite, ..plan }).request(RequestKind::Known),
        |run| {
            assert_eq!(status(&run), Some(500));
            assert!(run.lookups()[0].has_called(PortCall::Settle(Settlement::Spend(1))));
            assert_eq!((run.balance().spent, run.balance().held), (0, 0));
        },
    );
}

#[test]
fn failed_release_still_gives_404_and_hold_expires() {
    let slow = FaultKind::Port(0, Port::Resolver, PortFault::Delay(2 * SECOND), 1.0);
    let fails = FaultKind::Port(0, Port::Credits, PortFault::Error, 1.0);
    let with_faults =
        |plan: Plan| plan.fault(START, SECOND, slow.clone()).fault(SECOND, 12 * SECOND, fails.clone());
    for_each_seed(
        |plan| with_faults(plan).request(RequestKind::Unknown),
        |run| {
            assert_eq!(status(&run), Some(404));
            assert_eq!(run.lookups()[0].store_effects.len(), 1, "held, and never released");
            assert_eq!((run.balance().spent, run.balance().held), (0, 0), "the hold expires");
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
    let slow = FaultKind::Port(0, Port::Resolver, PortFault::Delay(4 * SECOND), 1.0);
    plan.fault(START, 3 * SECOND, slow).request_to(0, RequestKind::Known, http, SECOND)
}

fn assert_lookup_finished(run: Run) {
    assert_eq!(status(&run), None);
    assert_eq!(run.lookups()[0].logged_statuses, [200]);
    assert_eq!((run.balance().spent, run.balance().held), (1, 0));
}

#[test]
fn hold_expires_when_node_crashes_during_lookup() {
    let hang = FaultKind::Port(0, Port::Resolver, PortFault::Hang, 1.0);
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
    let hang = FaultKind::Port(0, Port::Resolver, PortFault::Hang, 1.0);
    let plan = |plan: Plan| {
        let plan = Plan { stores: StoreKind::Sqlite, ..plan };
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
