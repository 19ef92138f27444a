//! Faults of nodes on Redis and PostgreSQL.

use std::time::Duration;

use enrich_lib::window::Quota;
use enrich_sim::{Direction, FaultKind, Plan, RequestKind, Server, VendorFault};

use self::RequestKind::{InvalidEmail, Known};
use super::{Case, POSTGRES, REDIS, case, known, on_servers, requests, slow, vendor};

fn one_on_servers(seed: u64) -> Plan {
    known(on_servers(seed), &[(0, 1.0)])
}

/// One request before, one on each node during, and one of another client soon after.
fn at_failover(seed: u64) -> Plan {
    let mut plan = known(on_servers(seed), &[(0, 1.0), (0, 5.0), (1, 0.0)]);
    let mut later = plan.clients[0][0].clone();
    later.pause = Duration::from_millis(11_500);
    plan.clients.push(vec![later]);
    plan
}

#[test]
fn each_fault_on_two_nodes_has_its_replies() {
    let partition = FaultKind::Partition(POSTGRES);
    let to_node = FaultKind::OneWayPartition(POSTGRES, Direction::ToNode);
    let from_node = FaultKind::OneWayPartition(POSTGRES, Direction::FromNode);
    let crash = FaultKind::ServerCrash(Server::Postgres);
    let standby = (4.0, 11.0, FaultKind::Standby);
    let mut cases = vec![
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
        case(|seed| known(on_servers(seed), &[(0, 1.0), (0, 3.0), (1, 1.0)]), &[], &[200, 401, 401], 1)
            .with_revocation(2.5),
        case(
            |seed| known(on_servers(seed), &[(0, 1.0), (0, 3.0)]),
            &[(3.0, 12.0, partition.clone())],
            &[200, 500],
            1,
        )
        .with_revocation(3.5),
        // The windows that Redis loses start again, and one count notices that the connection is lost.
        case(
            |seed| {
                let mut plan = on_servers(seed);
                plan.quota = Quota::new(2, 86_400).expect("valid");
                let pauses = [1.0, 0.5, 0.5, 4.0, 0.5, 0.5, 0.5].map(|pause| (0, pause, 30.0));
                requests(plan, InvalidEmail, &pauses)
            },
            &[(3.5, 4.5, FaultKind::ServerCrash(Server::Redis))],
            &[400, 400, 429, 503, 400, 400, 429],
            0,
        ),
        // No node uses a cached key during a failover, and each uses the next primary at once.
        case(at_failover, std::slice::from_ref(&standby), &[200, 500, 500, 200], 2),
        case(at_failover, std::slice::from_ref(&standby), &[200, 500, 500, 401], 1).with_revocation(4.5),
        // A node that stops waits until it can write its usage.
        case(
            one_on_servers,
            &[(2.5, 8.0, partition.clone()), (3.0, 20.0, FaultKind::Shutdown(0))],
            &[200],
            1,
        ),
    ];
    for fault in [&partition, &to_node, &crash] {
        // Without the opt-outs, the answer of the vendor is not used.
        let faults = [(0.0, 3.0, slow(2)), (2.0, 14.0, fault.clone())];
        cases.push(case(one_on_servers, &faults, &[502], 0));
    }
    for fault in [&partition, &to_node, &from_node, &crash] {
        let plan = |seed| known(on_servers(seed), &[(0, 1.0), (0, 1.0), (0, 5.0), (0, 58.0)]);
        cases.push(case(plan, &[(5.5, 62.0, fault.clone())], &[200, 200, 500, 200], 3));
    }
    // Nothing is executed without Redis, and the deadline of a count holds.
    for fault in [
        FaultKind::ServerCrash(Server::Redis),
        FaultKind::Partition(REDIS),
        FaultKind::OneWayPartition(REDIS, Direction::ToNode),
        FaultKind::OneWayPartition(REDIS, Direction::FromNode),
        FaultKind::Latency(REDIS, Duration::from_millis(400)),
    ] {
        let plan = |seed| known(on_servers(seed), &[(0, 1.0), (0, 4.0)]);
        cases.push(case(plan, &[(0.5, 3.5, fault)], &[503, 200], 1).with_time(0, 0.0..0.7));
    }
    for ahead_ms in [90_000, 3_600_000] {
        let plan = |seed| known(on_servers(seed), &[(0, 1.0), (0, 1.0), (1, 1.0), (0, 3.0)]);
        let fast = (1.5, 5.0, FaultKind::WrongClock(0, ahead_ms));
        cases.push(case(plan, &[fast], &[200, 503, 200, 200], 3));
    }
    cases.into_iter().for_each(Case::check);
}
