//! The outcome of one spend, whose commit fails, waits for a standby or a lock, or arrives late. The vendor
//! takes more than two seconds, so the spend begins about five seconds after the start. Another lookup has opened all
//! connections before.

use enrich_sim::{FaultKind, Plan, Run, Server, Severity};

use crate::several_nodes::{SECOND, for_each_seed, reply_time, slow_vendor, statuses};

/// Runs one lookup with these faults, and checks its status. It is spent if and only if it is a 200.
fn assert_outcome(faults: &[(u32, u32, FaultKind)], status: u16, check: impl Fn(&Run)) {
    let plan = |plan: Plan| {
        let faults = faults.iter().cloned();
        faults.fold(plan.fault(2 * SECOND, 5 * SECOND, slow_vendor()), |plan, (from, to, kind)| {
            plan.fault(from * SECOND, to * SECOND, kind)
        })
    };
    for_each_seed(2, plan, |run| {
        assert_eq!(statuses(&run), [Some(200), Some(status)], "{faults:?}");
        let spent = 1 + u64::from(status == 200);
        assert_eq!((run.balance().spent, run.balance().held), (spent, 0), "{faults:?}");
        check(&run);
    });
}

/// The outage takes longer than a spend waits to be sent.
#[test]
fn failed_commit_has_no_answer_until_the_server_is_back() {
    for severity in [Severity::Fatal, Severity::Panic] {
        for (is_replayed, status) in [(true, 200), (false, 500)] {
            let failed = FaultKind::FailedCommit { severity, is_replayed };
            assert_outcome(&[(3, 11, failed)], status, |run| {
                assert!(reply_time(run, 1) > 9 * SECOND, "{:?}", reply_time(run, 1));
            });
        }
    }
}

#[test]
fn commit_without_the_standby_has_no_answer_until_it_returns_or_is_promoted() {
    let away = (4, 15, FaultKind::StandbyAway);
    for visible_by in [
        FaultKind::TerminatedSessions,
        FaultKind::CanceledStatements,
        FaultKind::ServerCrash(Server::Postgres),
    ] {
        let interrupted = (8, 9, visible_by);
        let returns = [away.clone(), interrupted.clone()];
        assert_outcome(&returns, 200, |run| assert!(reply_time(run, 1) > 10 * SECOND));
        let promoted = [away.clone(), interrupted, (10, 12, FaultKind::Promotion)];
        assert_outcome(&promoted, 500, |run| assert!(reply_time(run, 1) > 8 * SECOND));
    }
}

#[test]
fn late_spend_finds_no_hold() {
    assert_outcome(&[(3, 12, FaultKind::LateStatements(3 * SECOND))], 500, |run| {
        assert!(reply_time(run, 1) < 6 * SECOND, "{:?}", reply_time(run, 1));
    });
}

#[test]
fn lookup_in_flight_waits_for_a_server_that_is_read_only() {
    assert_outcome(&[(5, 8, FaultKind::ReadOnly)], 200, |_| {});
}

#[test]
fn locked_table_delays_a_spend_only_if_it_needs_the_table() {
    for (table, is_delayed) in [("usage_day", false), ("settlement", true)] {
        assert_outcome(&[(4, 8, FaultKind::LockedTable(table))], 200, |run| {
            assert_eq!(reply_time(run, 1) > 9 * SECOND / 2, is_delayed, "{table}: {:?}", reply_time(run, 1));
        });
    }
}

#[test]
fn lookup_in_flight_waits_for_connections() {
    assert_outcome(&[(5, 8, FaultKind::NoConnections)], 200, |_| {});
}
