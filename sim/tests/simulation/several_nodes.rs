//! Several nodes on Redis and PostgreSQL: single faults and the exact replies. Every run also checks all
//! invariants.

use std::time::Duration;

use enrich_lib::window::Quota;
use enrich_sim::{
    Clock, Direction, Event, FaultKind, HttpVersion, Link, Peer, Plan, RequestKind, Run, Server, VendorFault,
    World, seeds,
};

const SEEDS: u64 = 5;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The links between the first node and its servers.
const TO_REDIS: Link = Link { peer: Peer::Server(Server::Redis), node: 0 };
const TO_POSTGRES: Link = Link { peer: Peer::Server(Server::Postgres), node: 0 };

/// Runs two nodes, and a client that sends a request for a known person every second.
pub(crate) fn for_each_seed(seconds: usize, plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        let plan_with_requests =
            (0..seconds).fold(Plan::empty_on_servers(seed, 2), |plan, _| with_request(plan, 0, 1));
        check(World::with_plan(plan(plan_with_requests)).run().check());
    }
}

/// Adds a request by the first client for a person of its own, `seconds` after the previous one.
fn with_request(mut plan: Plan, node: usize, seconds: u32) -> Plan {
    plan = plan.request_to(node, RequestKind::Known, HttpVersion::Http1, 30 * SECOND);
    if let Some(request) = plan.clients[0].last_mut() {
        request.pause = seconds * SECOND;
    }
    plan
}

/// Returns the statuses of the clients' requests, without the prober's.
pub(crate) fn statuses(run: &Run) -> Vec<Option<u16>> {
    run.statuses()[..run.plan.clients.iter().map(Vec::len).sum()].to_vec()
}

/// Returns the time between request `n` and its reply.
pub(crate) fn reply_time(run: &Run, n: usize) -> Duration {
    let at = |found: &dyn Fn(&Event) -> bool| {
        run.trace.iter().find(|entry| found(&entry.event)).map(|entry| entry.at)
    };
    let sent = at(&|event| matches!(event, Event::RequestSent(sent) if sent.number == n));
    let received = at(&|event| matches!(event, Event::ReplyReceived(number, _) if *number == n));
    received.expect("a reply") - sent.expect("a request")
}

/// Returns the number of 200s that the clients received, without the prober's.
fn found_replies(run: &Run) -> u64 {
    statuses(run).iter().filter(|status| **status == Some(200)).count() as u64
}

#[test]
fn unreachable_redis_gives_503_within_deadline_without_execution() {
    let assert_fault = |fault: FaultKind| {
        let plan = |plan: Plan| plan.fault(500 * SECOND / 1_000, 3_500 * SECOND / 1_000, fault.clone());
        for_each_seed(5, plan, assert_503_during_fault);
    };
    assert_fault(FaultKind::ServerCrash(Server::Redis));
    assert_fault(FaultKind::Partition(TO_REDIS));
    assert_fault(FaultKind::OneWayPartition(TO_REDIS, Direction::ToNode));
    assert_fault(FaultKind::OneWayPartition(TO_REDIS, Direction::FromNode));
    assert_fault(FaultKind::Latency(TO_REDIS, 400 * SECOND / 1_000));
}

/// Checks that the fault affected the first request and that every affected request quickly received a 503,
/// without a hold or a vendor request.
fn assert_503_during_fault(run: Run) {
    let statuses = statuses(&run);
    assert_eq!(statuses[0], Some(503), "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, Some(200 | 503))), "{statuses:?}");
    for (n, _) in statuses.iter().enumerate().filter(|(_, status)| **status == Some(503)) {
        // The deadline of a count, plus the latency of the request and the reply.
        assert!(reply_time(&run, n) < 700 * SECOND / 1_000, "{:?}", reply_time(&run, n));
    }
    let refused = run.lookups().into_iter().filter(|history| history.logged_statuses == [503]);
    assert!(refused.into_iter().all(|history| !history.is_executed()));
    assert_eq!(run.balance().spent, found_replies(&run));
}

#[test]
fn redis_restart_admits_at_most_one_more_limit() {
    let plan = |mut plan: Plan| {
        plan.quota = Quota::new(2, 86_400).unwrap();
        plan.fault(3_500 * SECOND / 1_000, 4_500 * SECOND / 1_000, FaultKind::ServerCrash(Server::Redis))
    };
    for_each_seed(12, plan, |run| {
        let statuses = statuses(&run);
        assert_eq!(found_replies(&run), 4, "{statuses:?}");
        assert!(statuses.contains(&Some(429)), "{statuses:?}");
    });
}

pub(crate) fn slow_vendor() -> FaultKind {
    FaultKind::Vendor(VendorFault::Delay(2 * SECOND), 1.0)
}

#[test]
fn skewed_nodes_and_servers_never_exceed_a_window_limit() {
    let clock = |ahead_ms| Clock { ahead_ms, ..Clock::default() };
    for (first, second, redis, postgres) in
        [(5_000, -5_000, 5_000, -5_000), (-5_000, 5_000, -5_000, 5_000), (0, 5_000, 5_000, 5_000)]
    {
        let plan = |mut plan: Plan| {
            plan.quota = Quota::new(2, 3).unwrap();
            plan.clocks = vec![clock(first), clock(second)];
            plan.servers.redis = clock(redis);
            plan.servers.postgres = clock(postgres);
            // The requests are refused for their bodies, so they follow each other quickly: 40 of them in
            // about five seconds.
            [0, 1].repeat(20).into_iter().fold(plan, |plan, node| {
                plan.request_to(node, RequestKind::InvalidEmail, HttpVersion::Http1, 5 * SECOND)
            })
        };
        for_each_seed(0, plan, |run| {
            let statuses = statuses(&run);
            let admitted = statuses.iter().filter(|status| **status == Some(400)).count();
            assert!(admitted >= 4 && statuses.contains(&Some(429)), "{statuses:?}");
        });
    }
}

#[test]
fn standby_gives_500_and_the_next_primary_is_used_at_once() {
    for revoked_at in [None, Some(4_500 * SECOND / 1_000)] {
        let plan = |plan: Plan| {
            let plan = plan.fault(4 * SECOND, 11 * SECOND, FaultKind::Standby);
            let plan = match revoked_at {
                Some(at) => plan.fault(at, 5 * SECOND, FaultKind::KeyRevocation),
                None => plan,
            };
            // On each node during the fault, when it may not use a cached key, and soon after the fault.
            let mut plan = with_request(with_request(plan, 0, 5), 1, 0);
            let pause = 11_500 * SECOND / 1_000;
            let mut later = plan.clients[0][0].clone();
            later.pause = pause;
            plan.clients.push(vec![later]);
            plan
        };
        for_each_seed(1, plan, |run| {
            let after = if revoked_at.is_some() { 401 } else { 200 };
            assert_eq!(statuses(&run), [Some(200), Some(500), Some(500), Some(after)]);
        });
    }
}

/// Without the database, the node cannot write its usage when it stops.
#[test]
fn node_that_stops_waits_for_postgres() {
    let plan = |plan: Plan| {
        let plan = plan.fault(2 * SECOND, 8 * SECOND, FaultKind::Partition(TO_POSTGRES));
        plan.fault(3 * SECOND, 20 * SECOND, FaultKind::Shutdown(0))
    };
    for_each_seed(1, plan, |run| {
        let has = |event: fn(&Event) -> bool| run.trace.iter().any(|entry| event(&entry.event));
        assert!(has(|event| matches!(event, Event::NodeStopped(0))));
        assert!(!has(|event| matches!(event, Event::NodeFailed(..))));
    });
}
