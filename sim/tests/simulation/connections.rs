//! The effects of single network faults on a request and its connection. Every run also checks all
//! invariants.

use std::time::Duration;

use enrich_sim::{Event, FaultKind, HttpVersion, Plan, RequestKind, Run, VendorFault, World, seeds};

const SEEDS: u64 = 5;

const START: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

fn for_each_seed(plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        check(World::with_plan(plan(Plan::empty(seed))).run().check());
    }
}

#[test]
fn http1_connection_serves_sequential_requests() {
    for_each_seed(|plan| with_sequential_requests(plan, HttpVersion::Http1), assert_one_connection);
}

#[test]
fn http2_connection_serves_sequential_requests() {
    for_each_seed(|plan| with_sequential_requests(plan, HttpVersion::Http2), assert_one_connection);
}

fn with_sequential_requests(plan: Plan, http: HttpVersion) -> Plan {
    let kinds = [RequestKind::Known, RequestKind::Unknown, RequestKind::InvalidEmail];
    let mut plan = kinds.into_iter().fold(plan, |plan, kind| plan.request_to(0, kind, http, 30 * SECOND));
    plan.clients[0].iter_mut().for_each(|request| request.reuses_connection = true);
    plan
}

fn assert_one_connection(run: Run) {
    assert_eq!(run.statuses()[..3], [Some(200), Some(404), Some(400)]);
    let sent = run.trace.iter().filter_map(|entry| match &entry.event {
        Event::RequestSent(sent) if sent.client.is_some() => Some(sent.reuses_connection),
        _ => None,
    });
    assert_eq!(sent.collect::<Vec<_>>(), [false, true, true], "the first request opens the connection");
}

#[test]
fn cancelled_http2_request_keeps_its_connection_usable() {
    let slow = FaultKind::Vendor(VendorFault::Delay(4 * SECOND), 1.0);
    let plan = |plan: Plan| {
        let plan = plan.fault(START, 1_500 * SECOND / 1_000, slow.clone());
        let mut plan = plan.request_to(0, RequestKind::Known, HttpVersion::Http2, SECOND).request_to(
            0,
            RequestKind::Known,
            HttpVersion::Http2,
            30 * SECOND,
        );
        plan.clients[0][1].reuses_connection = true;
        plan.clients[0][1].pause = SECOND;
        plan
    };
    for_each_seed(plan, |run| {
        assert_eq!(run.statuses()[..2], [None, Some(200)]);
        assert_eq!(run.balance().spent, 2, "the cancelled lookup is finished as well");
    });
}
