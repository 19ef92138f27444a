//! Nodes with resolver middleware and a failing vendor. Every run also checks all invariants.

use std::time::Duration;

use enrich_sim::{Answer, Event, Fault, Link, Peer, Plan, Question, Run, What, Wish, World, seeds};

const SEEDS: u64 = 20;

/// The vendor requests of the prober: one per node.
const PROBES: usize = 2;

const SECOND: Duration = Duration::from_secs(1);

fn each(plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        check(World::run(&Plan { is_guarded: true, ..plan(Plan::calm(seed)) }).check());
    }
}

/// Returns the number of requests that the vendor received.
fn asks(run: &Run) -> usize {
    run.trace.iter().filter(|entry| matches!(entry.event, Event::Sought(..))).count()
}

#[test]
fn a_vendor_that_fails_now_and_then_is_asked_again_and_paid_for_once() {
    let flaps = What::Vendor(Fault::Errors, 0.3);
    each(
        |plan| plan.ask(Wish::Known).trouble(Duration::ZERO, 10 * SECOND, flaps.clone()),
        |run| {
            assert_eq!(run.statuses()[0], Some(200));
            assert_eq!(run.balance().spent, 1);
        },
    );
}

#[test]
fn a_vendor_that_hangs_is_a_502_within_the_budget_and_costs_nothing() {
    let hangs = What::Vendor(Fault::Hangs, 1.0);
    each(
        |plan| plan.ask(Wish::Known).trouble(Duration::ZERO, 12 * SECOND, hangs.clone()),
        |run| {
            assert_eq!(run.statuses()[0], Some(502));
            assert_eq!(run.balance().spent, 0);
            let asked = run.stories();
            assert!(asked[0].ends == [502], "{asked:?}");
        },
    );
}

#[test]
fn a_vendor_that_keeps_failing_is_left_alone_and_asked_again_when_it_is_back() {
    let fails = What::Vendor(Fault::Errors, 1.0);
    let asking = |plan: Plan| (0..12).fold(plan, |plan, _| plan.ask(Wish::Known));
    each(
        |plan| asking(plan).trouble(Duration::ZERO, 6 * SECOND, fails.clone()),
        |run| {
            let statuses = run.statuses();
            assert!(statuses[..12].contains(&Some(502)), "{statuses:?}");
            // Without the breaker each lookup would make six requests: three tries under each of two names.
            assert!(asks(&run) < 6 * 12, "{} asks", asks(&run));
            assert!(statuses[12..].iter().all(|status| *status == Some(200)), "{statuses:?}");
        },
    );
}

#[test]
fn a_second_ask_wins_over_a_first_one_that_hangs() {
    // The fault ends before the hedged request is sent.
    let hangs = What::Vendor(Fault::Hangs, 1.0);
    each(
        |plan| plan.ask(Wish::Known).trouble(Duration::ZERO, SECOND, hangs.clone()),
        |run| {
            assert_eq!(run.statuses()[0], Some(200));
            assert_eq!((run.balance().spent, asks(&run)), (1, 2 + PROBES));
            let passed_over = run.lines().into_iter().find(|line| line.contains("vendor request failed"));
            assert_eq!(passed_over, None, "the vendor has not failed");
        },
    );
}

#[test]
fn two_lookups_of_one_person_at_once_are_one_ask_and_two_spends() {
    // So slow that the second lookup starts before the first one has its response.
    let slow = What::Slow(Link { peer: Peer::Vendor, node: 0 }, Duration::from_millis(60));
    let at_once = Duration::from_millis(10);
    each(
        |plan| {
            let plan = plan.ask_for_one(0, at_once).ask_for_one(1, at_once);
            plan.trouble(Duration::ZERO, 3 * SECOND, slow.clone())
        },
        |run| {
            assert_eq!(run.statuses()[..2], [Some(200); 2]);
            assert_eq!((run.balance().spent, asks(&run)), (2, 1 + PROBES));
            assert_eq!(persons(&run)[..4], [ASKED, ASKED, FOUND, FOUND]);
        },
    );
}

#[test]
fn what_is_remembered_is_billed_and_the_vendor_is_not_asked_until_it_is_forgotten() {
    let (soon, late) = (Duration::from_millis(10), 3 * SECOND);
    each(
        |plan| plan.ask_for_one(0, soon).ask_for_one(0, soon).ask_for_one(0, late),
        |run| {
            assert_eq!(run.statuses()[..3], [Some(200); 3]);
            assert_eq!((run.balance().spent, asks(&run)), (3, 2 + PROBES));
        },
    );
}

#[test]
fn a_person_who_opted_out_is_a_404_and_the_vendor_never_hears_of_them() {
    each(
        |plan| plan.ask(Wish::OptedOut),
        |run| {
            assert_eq!(run.statuses()[0], Some(404));
            assert_eq!((run.balance().spent, asks(&run)), (0, PROBES));
        },
    );
}

const ASKED: &str = "is asked";
const FOUND: &str = "has found";

/// Returns the resolver's calls and found profiles, in order.
fn persons(run: &Run) -> Vec<&'static str> {
    let turn = |event: &Event| match event {
        Event::Asks(_, Question::Person) => Some(ASKED),
        Event::Told(_, Answer::Person(true)) => Some(FOUND),
        _ => None,
    };
    run.trace.iter().filter_map(|entry| turn(&entry.event)).collect()
}
