//! Single faults, and the reply that the specification or the design requires for each. Every run also checks
//! all invariants.

use std::time::Duration;

use enrich_lib::window::Quota;
use enrich_sim::{DiskFault, FaultKind, Plan, RequestKind, Run, World, seeds};

const SEEDS: u64 = 5;

const START: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// Runs the plan with a few seeds, so that the result does not depend on the latency of single calls.
fn for_each_seed(plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        check(World::with_plan(plan(Plan::empty(seed))).run().check());
    }
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
