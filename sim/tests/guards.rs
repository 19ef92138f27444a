//! A vendor that fails, and nodes that guard themselves against it. All invariants are checked as well.

#![cfg(feature = "sim")]

use std::time::Duration;

use enrich_sim::{Event, Fault, Plan, Run, What, Wish, World, seeds};

const SEEDS: u64 = 20;

const SECOND: Duration = Duration::from_secs(1);

fn each(plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        check(World::run(&Plan { is_guarded: true, ..plan(Plan::calm(seed)) }).check());
    }
}

/// How often the vendor was asked.
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
            // Each lookup would ask six times: three tries, under two names.
            assert!(asks(&run) < 6 * 12, "{} asks", asks(&run));
            assert!(statuses[12..].iter().all(|status| *status == Some(200)), "{statuses:?}");
        },
    );
}
