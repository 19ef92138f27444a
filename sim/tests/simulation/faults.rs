//! Single faults, and the replies that the specification or the design requires for each. Every run also checks
//! all invariants.

use std::time::Duration;

use enrich_sim::{
    Direction, DiskFault, FaultKind, HttpVersion, Link, Peer, Plan, RequestKind, Server, VendorFault, World,
    seeds,
};

use self::RequestKind::{Known, OptedOut};

const CLIENT: Link = Link { peer: Peer::Client(0), node: 0 };
const VENDOR: Link = Link { peer: Peer::Vendor, node: 0 };
const POSTGRES: Link = Link { peer: Peer::Server(Server::Postgres), node: 0 };

/// A fault, and the seconds at which it starts and ends.
type Fault = (f64, f64, FaultKind);

/// The requests of a client beside some faults.
struct Case {
    plan: fn(u64) -> Plan,
    faults: Vec<Fault>,
    /// The status of each request, or 0 if it has no reply.
    statuses: &'static [u16],
    spent: u64,
}

fn on_sqlite(seed: u64) -> Plan {
    Plan::empty(seed)
}

fn with_middleware(seed: u64) -> Plan {
    let mut plan = Plan::empty(seed);
    plan.has_middleware = true;
    plan
}

fn on_servers(seed: u64) -> Plan {
    Plan::empty_on_servers(seed, 2)
}

/// Adds requests: the node, the seconds since the previous one, and the seconds for which the client waits.
fn requests(plan: Plan, kind: RequestKind, requests: &[(usize, f64, f64)]) -> Plan {
    requests.iter().fold(plan, |plan, (node, pause, timeout)| {
        let timeout = Duration::from_secs_f64(*timeout);
        let mut plan = plan.request_to(*node, kind, HttpVersion::Http1, timeout);
        plan.clients[0].last_mut().expect("a request").pause = Duration::from_secs_f64(*pause);
        plan
    })
}

/// Adds requests for known persons by a patient client.
fn known(plan: Plan, nodes: &[(usize, f64)]) -> Plan {
    let patient: Vec<_> = nodes.iter().map(|(node, pause)| (*node, *pause, 30.0)).collect();
    requests(plan, Known, &patient)
}

/// One request.
fn one(seed: u64) -> Plan {
    known(on_sqlite(seed), &[(0, 0.01)])
}

/// One request before, and one after a fault of the disk.
fn two(seed: u64) -> Plan {
    known(on_sqlite(seed), &[(0, 0.1), (0, 5.0)])
}

fn one_on_servers(seed: u64) -> Plan {
    known(on_servers(seed), &[(0, 1.0)])
}

fn vendor(fault: VendorFault) -> FaultKind {
    FaultKind::Vendor(fault, 1.0)
}

fn slow(seconds: u64) -> FaultKind {
    vendor(VendorFault::Delay(Duration::from_secs(seconds)))
}

fn on_one_node() -> Vec<Case> {
    let case =
        |plan, faults: &[Fault], statuses, spent| Case { plan, faults: faults.into(), statuses, spent };
    let crash = FaultKind::NodeCrash(0);
    let disk = |fault| FaultKind::Disk(0, fault);
    let hang_up: [fn(u64) -> Plan; 2] = [
        |seed| on_sqlite(seed).request_to(0, Known, HttpVersion::Http1, Duration::from_secs(1)),
        |seed| on_sqlite(seed).request_to(0, Known, HttpVersion::Http2, Duration::from_secs(1)),
    ];
    let mut cases = vec![
        // The vendor: the hold is released.
        case(one, &[(0.0, 3.0, vendor(VendorFault::Error))], &[502], 0),
        case(one, &[(0.0, 3.0, vendor(VendorFault::Hang))], &[502], 0),
        case(one, &[(0.0, 3.0, vendor(VendorFault::Truncated))], &[502], 0),
        case(one, &[(0.0, 3.0, slow(11))], &[502], 0),
        case(one, &[(0.0, 12.0, FaultKind::Partition(VENDOR))], &[502], 0),
        // The client hangs up, or the network loses what it sends or receives.
        case(hang_up[0], &[(0.0, 3.0, slow(4))], &[0], 1),
        case(hang_up[1], &[(0.0, 3.0, slow(4))], &[0], 1),
        case(one, &[(0.0, 31.0, FaultKind::Partition(CLIENT))], &[0], 0),
        case(one, &[(0.0, 5.0, FaultKind::Buffering(CLIENT))], &[200], 1),
        case(one, &[(0.0, 31.0, FaultKind::OneWayPartition(CLIENT, Direction::ToNode))], &[0], 0),
        case(
            one,
            &[(0.0, 1.0, slow(2)), (1.0, 31.0, FaultKind::OneWayPartition(CLIENT, Direction::FromNode))],
            &[0],
            1,
        ),
        // The node: a crash loses holds and keeps spends.
        case(one, &[(0.0, 4.0, vendor(VendorFault::Hang)), (2.0, 4.0, crash.clone())], &[0], 0),
        case(
            |seed| known(on_sqlite(seed), &[(0, 0.01), (0, 3.0)]),
            &[(2.0, 6.0, vendor(VendorFault::Hang)), (5.0, 6.0, crash)],
            &[200, 0],
            1,
        ),
        case(one, &[(0.0, 1.0, slow(3)), (1.0, 2.0, FaultKind::Shutdown(0))], &[200], 1),
        case(one, &[(0.0, 1.0, slow(3)), (1.0, 2.0, FaultKind::Reload(0))], &[200], 1),
        // The disk.
        case(one, &[(0.0, 1.0, slow(2)), (1.0, 12.0, disk(DiskFault::Stall))], &[500], 0),
        case(two, &[(0.05, 3.0, disk(DiskFault::Full))], &[500, 200], 1),
        case(two, &[(0.05, 3.0, disk(DiskFault::Reads))], &[500, 200], 1),
        // Revoked keys, also while the node cannot read which keys were changed: between two ticks, which would
        // read the revocation.
        case(
            |seed| known(on_sqlite(seed), &[(0, 0.01), (0, 4.0)]),
            &[(2.0, 3.0, FaultKind::KeyRevocation)],
            &[200, 401],
            1,
        ),
        case(
            |seed| known(on_sqlite(seed), &[(0, 0.0), (0, 7.0), (0, 7.0)]),
            &[(4.1, 4.15, FaultKind::KeyRevocation), (4.15, 12.0, disk(DiskFault::Reads))],
            &[200, 500, 401],
            1,
        ),
        // The middleware: retries, and opt-outs.
        case(
            |seed| known(with_middleware(seed), &[(0, 0.01)]),
            &[(0.0, 10.0, FaultKind::Vendor(VendorFault::Error, 0.3))],
            &[200],
            1,
        ),
        case(
            |seed| known(with_middleware(seed), &[(0, 0.01)]),
            &[(0.0, 12.0, vendor(VendorFault::Hang))],
            &[502],
            0,
        ),
        case(|seed| requests(with_middleware(seed), OptedOut, &[(0, 0.01, 30.0)]), &[], &[404], 0),
    ];
    // The hold of the lookup in flight does not depend on the clock.
    cases.extend([3_600_000, -3_600_000].map(|wrong_ms| {
        let wrong = (1.0, 9.0, FaultKind::WrongClock(0, wrong_ms));
        case(
            |seed| known(on_sqlite(seed), &[(0, 0.01), (0, 1.0)]),
            &[(0.0, 1.0, slow(4)), wrong],
            &[200, 200],
            2,
        )
    }));
    cases
}

fn on_two_nodes() -> Vec<Case> {
    let case =
        |plan, faults: &[Fault], statuses, spent| Case { plan, faults: faults.into(), statuses, spent };
    let partition = FaultKind::Partition(POSTGRES);
    let to_node = FaultKind::OneWayPartition(POSTGRES, Direction::ToNode);
    let from_node = FaultKind::OneWayPartition(POSTGRES, Direction::FromNode);
    let crash = FaultKind::ServerCrash(Server::Postgres);
    let mut cases = vec![
        case(|seed| known(on_servers(seed), &[(0, 1.0), (0, 1.0), (0, 1.0), (1, 1.0)]), &[], &[200; 4], 4),
        case(
            |seed| {
                let mut plan = known(on_servers(seed), &[(0, 1.0), (0, 1.0), (1, 1.0), (0, 1.0)]);
                plan.credits = 3;
                plan
            },
            &[],
            &[200, 200, 200, 402],
            3,
        ),
        // The spend is sent until PostgreSQL receives it.
        case(one_on_servers, &[(0.0, 3.0, slow(2)), (2.0, 5.5, partition.clone())], &[200], 1),
        // Every second person is in PostgreSQL, so that no vendor is called.
        case(
            |seed| {
                let mut plan = known(on_servers(seed), &[(0, 1.0), (0, 1.0), (0, 1.0)]);
                plan.has_imported_people = true;
                plan
            },
            &[(0.0, 9.0, vendor(VendorFault::Error))],
            &[200, 502, 200],
            2,
        ),
        // The spend does not lock its workspace. The next hold does, and fails.
        case(
            |seed| known(on_servers(seed), &[(0, 1.0), (0, 1.0), (0, 10.0)]),
            &[(0.0, 3.0, slow(2)), (2.0, 8.0, FaultKind::LockedWorkspace)],
            &[200, 500, 200],
            2,
        ),
        // The credit that the first node holds when it crashes returns when the hold expires.
        case(
            |seed| {
                let plan = requests(on_servers(seed), Known, &[(0, 1.0, 0.5)]);
                let mut plan = known(plan, &[(1, 1.0), (1, 59.0)]);
                plan.credits = 1;
                plan
            },
            &[(0.0, 2.0, vendor(VendorFault::Hang)), (2.0, 60.0, FaultKind::NodeCrash(0))],
            &[0, 402, 200],
            1,
        ),
        // A partitioned node does not affect the other, which has all credits.
        case(
            |seed| {
                let mut plan = known(on_servers(seed), &[(0, 1.0), (0, 3.0)]);
                plan.credits = 8;
                known(plan, &[(1, 1.0); 7])
            },
            &[(3.0, 12.0, partition.clone())],
            &[200, 500, 200, 200, 200, 200, 200, 200, 200],
            8,
        ),
        // Revoked keys, also on a node that cannot read it.
        case(
            |seed| known(on_servers(seed), &[(0, 1.0), (0, 3.0), (1, 1.0)]),
            &[(2.5, 3.0, FaultKind::KeyRevocation)],
            &[200, 401, 401],
            1,
        ),
        case(
            |seed| known(on_servers(seed), &[(0, 1.0), (0, 3.0)]),
            &[(3.0, 12.0, partition.clone()), (3.5, 4.0, FaultKind::KeyRevocation)],
            &[200, 500],
            1,
        ),
    ];
    for fault in [&partition, &to_node, &crash] {
        // Without the opt-outs, the answer of the vendor is not used.
        let faults = [(0.0, 3.0, slow(2)), (2.0, 14.0, fault.clone())];
        cases.push(case(one_on_servers, &faults, &[502], 0));
    }
    for fault in [&partition, &to_node, &from_node, &crash] {
        let plan = |seed| known(on_servers(seed), &[(0, 1.0), (0, 1.0), (0, 5.0)]);
        cases.push(case(plan, &[(5.5, 17.0, fault.clone())], &[200, 200, 500], 2));
    }
    for ahead_ms in [90_000, 3_600_000] {
        let plan = |seed| known(on_servers(seed), &[(0, 1.0), (0, 1.0), (1, 1.0), (0, 3.0)]);
        let fast = (1.5, 5.0, FaultKind::WrongClock(0, ahead_ms));
        cases.push(case(plan, &[fast], &[200, 503, 200, 200], 3));
    }
    cases
}

#[test]
fn each_fault_on_one_node_has_its_replies() {
    check(on_one_node());
}

#[test]
fn each_fault_on_two_nodes_has_its_replies() {
    check(on_two_nodes());
}

/// Runs each case with a few seeds, so that the result does not depend on the latency of single calls.
fn check(cases: Vec<Case>) {
    for Case { plan, faults, statuses, spent } in cases {
        for seed in seeds(3) {
            let plan = faults.iter().fold(plan(seed), |plan, (from, to, kind)| {
                plan.fault(Duration::from_secs_f64(*from), Duration::from_secs_f64(*to), kind.clone())
            });
            let run = World::with_plan(plan).run().check();
            let replies: Vec<_> = run.statuses().into_iter().map(Option::unwrap_or_default).collect();
            assert_eq!(replies[..statuses.len()], *statuses, "seed {seed}: {faults:?}");
            assert_eq!((run.balance().spent, run.balance().held), (spent, 0), "seed {seed}: {faults:?}");
        }
    }
}
