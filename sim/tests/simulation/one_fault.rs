//! Single faults, and the reply that the specification or the design requires for each. Every run also checks all
//! invariants.

use std::time::Duration;

use enrich_lib::credit::Settlement;
use enrich_sim::{
    Deed, Fault, Http, Link, Peer, Plan, Port, Question, Run, StoreKind, What, Wish, World, seeds,
};

const SEEDS: u64 = 5;

const START: Duration = Duration::ZERO;
const SECOND: Duration = Duration::from_secs(1);

/// Runs the plan with a few seeds, so that the result does not depend on the latency of single calls.
fn each(plan: impl Fn(Plan) -> Plan, check: impl Fn(Run)) {
    for seed in seeds(SEEDS) {
        check(World::run(&plan(Plan::calm(seed))).check());
    }
}

/// Returns the status of the first client's first reply.
fn status(run: &Run) -> Option<u16> {
    run.statuses()[0]
}

#[test]
fn nothing_fails_and_everybody_is_answered() {
    let asks = |plan: Plan| plan.ask(Wish::Known).ask(Wish::Unknown).ask(Wish::NoKey);
    each(asks, |run| {
        assert_eq!(run.statuses()[..3], [Some(200), Some(404), Some(401)]);
        assert_eq!((run.balance().spent, run.balance().held), (1, 0));
    });
}

#[test]
fn a_resolver_that_fails_is_a_502_and_the_hold_is_released() {
    each(|plan| plan.fault(Port::Resolver, Fault::Errors).ask(Wish::Known), is_a_502_with_a_release);
}

#[test]
fn a_resolver_that_hangs_is_a_502_and_the_hold_is_released() {
    each(|plan| plan.fault(Port::Resolver, Fault::Hangs).ask(Wish::Known), is_a_502_with_a_release);
}

#[test]
fn a_vendor_that_fails_is_a_502_and_the_hold_is_released() {
    each(|plan| of_the_vendor(plan, Fault::Errors), is_a_502_with_a_release);
}

#[test]
fn a_vendor_that_hangs_is_a_502_and_the_hold_is_released() {
    each(|plan| of_the_vendor(plan, Fault::Hangs), is_a_502_with_a_release);
}

#[test]
fn a_vendor_whose_answer_breaks_off_is_a_502_and_the_hold_is_released() {
    each(|plan| of_the_vendor(plan, Fault::AnswerLost), is_a_502_with_a_release);
}

#[test]
fn a_vendor_that_answers_when_it_was_given_up_is_a_502_and_the_hold_is_released() {
    each(|plan| of_the_vendor(plan, Fault::Late(11 * SECOND)), is_a_502_with_a_release);
}

#[test]
fn a_vendor_that_cannot_be_reached_is_a_502_and_the_hold_is_released() {
    let cut = What::Partition(Link { peer: Peer::Vendor, node: 0 });
    each(|plan| plan.trouble(START, 12 * SECOND, cut.clone()).ask(Wish::Known), is_a_502_with_a_release);
}

fn of_the_vendor(plan: Plan, fault: Fault) -> Plan {
    plan.trouble(START, 3 * SECOND, What::Vendor(fault, 1.0)).ask(Wish::Known)
}

fn is_a_502_with_a_release(run: Run) {
    assert_eq!(status(&run), Some(502));
    assert!(run.stories()[0].asked(Question::Settle(Settlement::Release)));
    assert_eq!((run.balance().spent, run.balance().held), (0, 0));
}

#[test]
fn windows_that_fail_are_a_503_and_nothing_is_executed() {
    each(|plan| plan.fault(Port::Windows, Fault::Errors).ask(Wish::Known), is_a_503_and_not_executed);
}

#[test]
fn windows_that_hang_are_a_503_and_nothing_is_executed() {
    each(|plan| plan.fault(Port::Windows, Fault::Hangs).ask(Wish::Known), is_a_503_and_not_executed);
}

#[test]
fn a_count_whose_answer_is_lost_is_a_503_and_nothing_is_executed() {
    each(|plan| plan.fault(Port::Windows, Fault::AnswerLost).ask(Wish::Known), is_a_503_and_not_executed);
}

fn is_a_503_and_not_executed(run: Run) {
    assert_eq!(status(&run), Some(503));
    let story = &run.stories()[0];
    assert!(!story.asked(Question::Hold) && !story.asked(Question::Person) && story.deeds.is_empty());
}

#[test]
fn keys_that_fail_are_a_500_and_nobody_is_counted() {
    each(|plan| plan.fault(Port::Keys, Fault::Errors).ask(Wish::Known), is_a_500_and_not_counted);
}

#[test]
fn keys_that_hang_are_a_500_and_nobody_is_counted() {
    each(|plan| plan.fault(Port::Keys, Fault::Hangs).ask(Wish::Known), is_a_500_and_not_counted);
}

fn is_a_500_and_not_counted(run: Run) {
    assert_eq!(status(&run), Some(500));
    assert!(!run.stories()[0].asked(Question::Count));
}

#[test]
fn a_hold_that_hangs_is_a_500_and_nothing_is_charged() {
    let fault = What::Port(0, Port::Credits, Fault::Hangs, 1.0);
    each(
        |plan| plan.trouble(START, 8 * SECOND, fault.clone()).ask(Wish::Known),
        |run| {
            assert_eq!(status(&run), Some(500));
            assert_eq!((run.balance().spent, run.balance().held), (0, 0));
        },
    );
}

#[test]
fn a_hold_whose_answer_is_lost_is_a_500_and_ends_by_itself() {
    each(
        |plan| plan.fault(Port::Credits, Fault::AnswerLost).ask(Wish::Known),
        |run| {
            assert_eq!(status(&run), Some(500));
            assert_eq!(run.stories()[0].deeds.len(), 1, "it is held, and nobody settles it");
            assert_eq!((run.balance().spent, run.balance().held), (0, 0));
        },
    );
}

#[test]
fn a_spend_whose_answer_is_lost_is_charged_once() {
    // The resolver takes two seconds, so the fault starts after the hold is granted and before it is settled.
    let slow = What::Port(0, Port::Resolver, Fault::Late(2 * SECOND), 1.0);
    let lost = What::Port(0, Port::Credits, Fault::AnswerLost, 1.0);
    let troubles =
        |plan: Plan| plan.trouble(START, SECOND, slow.clone()).trouble(SECOND, 4 * SECOND, lost.clone());
    each(
        |plan| troubles(plan).ask(Wish::Known),
        |run| {
            assert_eq!(status(&run), Some(200));
            let is_spend = |deed: &&(_, Deed)| matches!(deed.1, Deed::Settled(_, Settlement::Spend(1)));
            assert!(run.stories()[0].deeds.iter().filter(is_spend).count() > 1, "it is asked for again");
            assert_eq!((run.balance().spent, run.balance().held), (1, 0));
        },
    );
}

#[test]
fn a_spend_that_waits_too_long_for_the_disk_is_a_500_and_not_charged() {
    let slow = What::Port(0, Port::Resolver, Fault::Late(2 * SECOND), 1.0);
    let troubles =
        |plan: Plan| plan.trouble(START, SECOND, slow.clone()).trouble(SECOND, 12 * SECOND, What::Stall(0));
    each(
        |plan| troubles(Plan { stores: StoreKind::Sqlite, ..plan }).ask(Wish::Known),
        |run| {
            assert_eq!(status(&run), Some(500));
            assert!(run.stories()[0].asked(Question::Settle(Settlement::Spend(1))));
            assert_eq!((run.balance().spent, run.balance().held), (0, 0));
        },
    );
}

#[test]
fn a_free_not_found_stands_though_its_release_fails() {
    let slow = What::Port(0, Port::Resolver, Fault::Late(2 * SECOND), 1.0);
    let fails = What::Port(0, Port::Credits, Fault::Errors, 1.0);
    let troubles =
        |plan: Plan| plan.trouble(START, SECOND, slow.clone()).trouble(SECOND, 12 * SECOND, fails.clone());
    each(
        |plan| troubles(plan).ask(Wish::Unknown),
        |run| {
            assert_eq!(status(&run), Some(404));
            assert_eq!(run.stories()[0].deeds.len(), 1, "it is held, and not released");
            assert_eq!((run.balance().spent, run.balance().held), (0, 0), "it ends by itself");
        },
    );
}

#[test]
fn a_client_that_hangs_up_on_http1_strands_no_hold() {
    each(|plan| hang_up(plan, Http::One), is_finished_all_the_same);
}

#[test]
fn a_client_that_hangs_up_on_http2_strands_no_hold() {
    each(|plan| hang_up(plan, Http::Two), is_finished_all_the_same);
}

/// The client hangs up after one second; the resolver takes four.
fn hang_up(plan: Plan, http: Http) -> Plan {
    let slow = What::Port(0, Port::Resolver, Fault::Late(4 * SECOND), 1.0);
    plan.trouble(START, 3 * SECOND, slow).ask_of(0, Wish::Known, http, SECOND)
}

fn is_finished_all_the_same(run: Run) {
    assert_eq!(status(&run), None);
    assert_eq!(run.stories()[0].ends, [200]);
    assert_eq!((run.balance().spent, run.balance().held), (1, 0));
}

#[test]
fn a_node_that_crashes_in_mid_lookup_gives_the_hold_back_by_its_expiry() {
    let hang = What::Port(0, Port::Resolver, Fault::Hangs, 1.0);
    let crash = What::Crash(0);
    let plan = |plan: Plan| {
        plan.trouble(START, 4 * SECOND, hang.clone()).trouble(2 * SECOND, 4 * SECOND, crash.clone())
    };
    each(
        |calm| plan(calm).ask(Wish::Known),
        |run| {
            assert_eq!(status(&run), None);
            let story = &run.stories()[0];
            assert!(story.is_cut_off && story.asked(Question::Person));
            assert_eq!((run.balance().spent, run.balance().held), (0, 0));
        },
    );
}

#[test]
fn a_ledger_that_crashes_in_mid_lookup_forgets_its_holds_and_keeps_its_spends() {
    let hang = What::Port(0, Port::Resolver, Fault::Hangs, 1.0);
    let plan = |plan: Plan| {
        let plan = Plan { stores: StoreKind::Sqlite, ..plan };
        let plan = plan.trouble(2 * SECOND, 6 * SECOND, hang.clone()).trouble(
            5 * SECOND,
            6 * SECOND,
            What::Crash(0),
        );
        let mut plan = plan.ask(Wish::Known).ask(Wish::Known);
        plan.clients[0][1].pause = 3 * SECOND;
        plan
    };
    each(plan, |run| {
        assert_eq!(run.statuses()[..2], [Some(200), None]);
        assert_eq!((run.balance().spent, run.balance().held), (1, 0));
    });
}
