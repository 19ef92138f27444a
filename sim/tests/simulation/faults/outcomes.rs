//! The outcome of one spend, whose commit fails, waits for a standby or a lock, or arrives late. The vendor takes
//! more than two seconds, so the spend begins about five seconds after the start. Another lookup has opened all
//! connections before. A lookup is spent if and only if it is a 200.

use std::ops::Range;
use std::time::Duration;

use enrich_sim::{FaultKind, Server, Severity};

use super::{Fault, case, known, on_servers, slow};

fn check(faults: &[Fault], statuses: &'static [u16; 2], seconds: Range<f64>) {
    let faults = [&[(2.0, 5.0, slow(2))], faults].concat();
    let spent = if statuses[1] == 200 { 2 } else { 1 };
    case(|seed| known(on_servers(seed), &[(0, 1.0); 2]), &faults, statuses, spent)
        .with_time(1, seconds)
        .check();
}

/// The outage takes longer than a spend waits to be sent.
#[test]
fn failed_commit_has_no_answer_until_the_server_is_back() {
    for severity in [Severity::Fatal, Severity::Panic] {
        let failed = |is_replayed| (3.0, 11.0, FaultKind::FailedCommit { severity, is_replayed });
        check(&[failed(true)], &[200, 200], 9.0..30.0);
        check(&[failed(false)], &[200, 500], 9.0..30.0);
    }
}

#[test]
fn commit_without_the_standby_has_no_answer_until_it_returns_or_is_promoted() {
    let crash = FaultKind::ServerCrash(Server::Postgres);
    for visible_by in [FaultKind::TerminatedSessions, FaultKind::CanceledStatements, crash] {
        let away = [(4.0, 15.0, FaultKind::StandbyAway), (8.0, 9.0, visible_by)];
        check(&away, &[200, 200], 10.0..30.0);
        check(&[&away[..], &[(10.0, 12.0, FaultKind::Promotion)]].concat(), &[200, 500], 8.0..30.0);
    }
}

#[test]
fn spend_in_flight_waits_for_what_it_needs() {
    let late = FaultKind::LateStatements(Duration::from_secs(3));
    check(&[(3.0, 12.0, late)], &[200, 500], 0.0..6.0);
    check(&[(5.0, 8.0, FaultKind::ReadOnly)], &[200, 200], 0.0..30.0);
    check(&[(5.0, 8.0, FaultKind::NoConnections)], &[200, 200], 0.0..30.0);
    check(&[(4.0, 8.0, FaultKind::LockedTable("usage_day"))], &[200, 200], 0.0..4.5);
    check(&[(4.0, 8.0, FaultKind::LockedTable("settlement"))], &[200, 200], 4.5..30.0);
}
