//! The effects of single network faults on a request and its connection. Every run also checks all
//! invariants.

use std::time::Duration;

use enrich_sim::{
    Direction, Event, FaultKind, HttpVersion, Link, Peer, Plan, RequestKind, Run, VendorFault, World, seeds,
};

const SEEDS: u64 = 5;

const START: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// The link between the first client and the first node.
const LINK: Link = Link { peer: Peer::Client(0), node: 0 };

fn for_each_seed(plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        check(World::with_plan(plan(Plan::empty(seed))).run().check());
    }
}

#[test]
fn partition_charges_only_for_delivered_requests() {
    let partition = FaultKind::Partition(LINK);
    let with_requests = |plan: Plan| {
        let mut plan = plan.request(RequestKind::Known).request(RequestKind::Known);
        let mut other = plan.clients[0][0].clone();
        other.pause = SECOND;
        plan.clients.push(vec![other]);
        plan
    };
    for_each_seed(
        |plan| with_requests(plan).fault(START, 3 * SECOND, partition.clone()),
        |run| {
            assert_eq!(run.statuses()[..3], [None, None, Some(200)], "the other client can connect");
            assert_eq!(run.balance().spent, 1);
        },
    );
}

#[test]
fn buffered_request_is_served_when_it_arrives() {
    let buffering = FaultKind::Buffering(LINK);
    for_each_seed(
        |plan| plan.request(RequestKind::Known).fault(START, 5 * SECOND, buffering.clone()),
        |run| {
            assert_eq!(run.statuses()[0], Some(200));
            assert_eq!(run.balance().spent, 1);
        },
    );
}

#[test]
fn dropped_request_starts_no_lookup() {
    let partition = FaultKind::OneWayPartition(LINK, Direction::ToNode);
    for_each_seed(
        |plan| plan.request(RequestKind::Known).fault(START, 31 * SECOND, partition.clone()),
        |run| {
            assert_eq!(run.statuses()[0], None);
            assert_eq!(run.balance().spent, 0);
        },
    );
}

#[test]
fn dropped_reply_is_charged() {
    let slow = FaultKind::Vendor(VendorFault::Delay(2 * SECOND), 1.0);
    let partition = FaultKind::OneWayPartition(LINK, Direction::FromNode);
    let with_faults =
        |plan: Plan| plan.fault(START, SECOND, slow.clone()).fault(SECOND, 31 * SECOND, partition.clone());
    for_each_seed(
        |plan| with_faults(plan).request(RequestKind::Known),
        |run| {
            assert_eq!(run.statuses()[0], None);
            assert_eq!(run.lookups()[0].logged_statuses, [200]);
            assert_eq!(run.balance().spent, 1);
        },
    );
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
