//! Faults of one node on SQLite, its disk, its clients and its vendor.

use std::time::Duration;

use enrich_lib::window::Quota;
use enrich_sim::{
    Direction, DiskFault, Event, FaultKind, HttpVersion, LogLine, Plan, RequestKind, VendorFault, World,
    seeds,
};

use self::RequestKind::{InvalidEmail, Known, NoKey, Unknown};
use super::{CLIENT, Case, VENDOR, case, known, on_one_connection, on_sqlite, requests, slow, vendor};

/// Requests, and their replies without faults.
const KINDS: [RequestKind; 4] = [Known, Unknown, InvalidEmail, NoKey];
const STATUSES: [u16; 4] = [200, 404, 400, 401];

/// One request.
fn one(seed: u64) -> Plan {
    known(on_sqlite(seed), &[(0, 0.01)])
}

/// One request before, and one after a fault of the disk.
fn two(seed: u64) -> Plan {
    known(on_sqlite(seed), &[(0, 0.1), (0, 5.0)])
}

/// The same, with a client that does not wait for a node that ends.
fn disk_fails(seed: u64) -> Plan {
    requests(on_sqlite(seed), Known, &[(0, 0.1, 4.0), (0, 5.0, 30.0)])
}

#[test]
fn each_fault_on_one_node_has_its_replies() {
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
        case(|seed| known(on_sqlite(seed), &[(0, 0.01), (0, 4.0)]), &[], &[200, 401], 1).with_revocation(2.0),
        case(
            |seed| known(on_sqlite(seed), &[(0, 0.0), (0, 7.0), (0, 7.0)]),
            &[(4.15, 12.0, disk(DiskFault::Reads))],
            &[200, 500, 401],
            1,
        )
        .with_revocation(4.1),
        // The disk ends the node, and the log that a start reads is not on the disk.
        case(disk_fails, &[(0.05, 3.0, disk(DiskFault::Syncs))], &[0, 200], 1).failing(),
        case(
            |seed| {
                requests(
                    on_sqlite(seed),
                    Known,
                    &[(0, 0.1, 4.0), (0, 1.0, 4.0), (0, 1.0, 4.0), (0, 1.0, 4.0)],
                )
            },
            &[(0.05, 3.0, disk(DiskFault::LostSyncs)), (7.0, 10.0, disk(DiskFault::PowerCut(0)))],
            &[0, 200, 0, 200],
            2,
        )
        .failing(),
        // Requests that share a connection, also after one that its client has cancelled.
        case(|seed| on_one_connection(on_sqlite(seed), HttpVersion::Http1, &KINDS), &[], &STATUSES, 1),
        case(|seed| on_one_connection(on_sqlite(seed), HttpVersion::Http2, &KINDS), &[], &STATUSES, 1),
        case(
            |seed| {
                let mut plan = on_one_connection(on_sqlite(seed), HttpVersion::Http2, &[Known, Known]);
                plan.clients[0][0].timeout = Duration::from_secs(1);
                plan.clients[0][1].pause = Duration::from_secs(1);
                plan
            },
            &[(0.0, 1.5, slow(4))],
            &[0, 200],
            2,
        ),
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
    // If a crash would recover the spend, it is in doubt until the disk works again.
    cases.extend([(0, 0.0..2.0), (1, 0.0..2.0), (2, 2.5..4.0), (3, 0.0..2.0)].map(|(before, seconds)| {
        let fails = (0.05, 3.0, disk(DiskFault::Writes(before)));
        case(disk_fails, &[fails], &[500, 200], 1).with_time(0, seconds)
    }));
    // Two minutes are two windows further on or back. The clock is right at first, and again at the end.
    cases.extend([120_000, -120_000].map(|wrong_ms| {
        let plan = |seed| {
            let mut plan = on_sqlite(seed);
            plan.quota = Quota::new(2, 60).expect("valid");
            let pauses = [0.01, 0.01, 0.01, 2.0, 0.01, 0.01, 2.0, 0.01, 0.01].map(|pause| (0, pause, 30.0));
            requests(plan, InvalidEmail, &pauses)
        };
        let wrong = (1.0, 3.0, FaultKind::WrongClock(0, wrong_ms));
        case(plan, &[wrong], &[400, 400, 429, 400, 400, 429, 429, 429, 429], 0)
    }));
    cases.into_iter().for_each(Case::check);
}

/// The disk is full twice, and a lookup fails each time.
#[test]
fn each_outage_of_the_disk_is_reported() {
    let full = || FaultKind::Disk(0, DiskFault::Full);
    let outages =
        [50..3_000, 7_000..12_000].map(|ms| Duration::from_millis(ms.start)..Duration::from_millis(ms.end));
    for seed in seeds(5) {
        let plan = known(on_sqlite(seed), &[(0, 0.1), (0, 7.5), (0, 6.0)]);
        let plan = outages.iter().fold(plan, |plan, at| plan.fault(at.start, at.end, full()));
        let run = World::with_plan(plan).run().check();
        assert_eq!(run.statuses()[..3], [Some(500), Some(500), Some(200)]);
        let is_report = |line: &LogLine| line.text.contains("the stores cannot be refreshed");
        for outage in &outages {
            let during = run.trace.iter().filter(|entry| outage.contains(&entry.at));
            let reports = during.filter(|it| matches!(&it.event, Event::Logged(line) if is_report(line)));
            // Ticks that write nothing succeed in between.
            assert!((1..=3).contains(&reports.count()), "{outage:?}");
        }
    }
}
