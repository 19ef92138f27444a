use std::sync::{Arc, Mutex};
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_middleware::{VendorErrorKind, Waterfall, WaterfallError};
use proptest::prelude::*;

use crate::scripted::{
    Act, Told, Vendor, ada, ask, ask_timed, breaks, drop_at_each_ms, fails, finds, found, hangs, knows_nobody,
};

fn waterfall(vendors: &[Arc<Vendor>]) -> Waterfall {
    let names = ["alpha", "beta", "gamma", "delta", "epsilon"];
    let first = Waterfall::starting_with(names[0], vendors[0].clone());
    let rest = names[1..].iter().zip(&vendors[1..]);
    rest.fold(first, |waterfall, (name, vendor)| waterfall.then(name, vendor.clone()))
}

fn asks(vendors: &[Arc<Vendor>]) -> Vec<usize> {
    vendors.iter().map(|vendor| vendor.asks()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_match_wins_and_nobody_after_it_is_asked() {
    let vendors = [knows_nobody(), finds("ada"), finds("bob")].map(Vendor::that);
    assert_eq!(ask(&waterfall(&vendors)).await, found("ada"));
    assert_eq!(asks(&vendors), [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_fails_is_passed_over() {
    let vendors = [breaks(), fails(VendorErrorKind::OutOfCredits), finds("ada")].map(Vendor::that);
    assert_eq!(ask(&waterfall(&vendors)).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_found_if_all_say_so() {
    let vendors = [knows_nobody(), knows_nobody()].map(Vendor::that);
    assert_eq!(ask(&waterfall(&vendors)).await, Told::Nobody);
}

#[tokio::test(start_paused = true)]
async fn on_half_the_evidence_it_fails_and_names_who_failed_and_why() {
    let vendors = [fails(VendorErrorKind::KeyRefused), knows_nobody(), breaks()].map(Vendor::that);
    let error = waterfall(&vendors).find(&ada()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "2 of 3 vendors failed; alpha: the vendor refuses our key; gamma: it broke"
    );
    let error: &WaterfallError = error.downcast_ref().unwrap();
    let names: Vec<_> = error.failures().map(|(name, _)| name).collect();
    assert_eq!(names, ["alpha", "gamma"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_of_even_if_a_later_vendor_finds_the_person() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = told.clone();
    let vendors = [fails(VendorErrorKind::KeyRefused), knows_nobody(), finds("ada")].map(Vendor::that);
    let waterfall = waterfall(&vendors).on_failure(move |query, name, error| {
        log.lock().unwrap().push(format!("{} {name}: {error}", query.workspace));
    });
    assert_eq!(ask(&waterfall).await, found("ada"));
    assert_eq!(*told.lock().unwrap(), ["demo alpha: the vendor refuses our key"]);
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_hangs_leaves_the_others_their_share() {
    let vendors = [hangs(), finds("ada").after(900), finds("bob")].map(Vendor::that);
    let waterfall = waterfall(&vendors).within(Duration::from_secs(3));
    assert_eq!(ask_timed(&waterfall).await, (found("ada"), 1_900));
    assert_eq!(vendors[0].under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_vendor_does_not_use_is_the_next_ones() {
    let vendors = [knows_nobody(), knows_nobody().after(100), finds("ada").after(2_800)].map(Vendor::that);
    let waterfall = waterfall(&vendors).within(Duration::from_secs(3));
    assert_eq!(ask_timed(&waterfall).await, (found("ada"), 2_900));
}

#[tokio::test(start_paused = true)]
async fn when_all_hang_it_fails_at_the_end_of_the_budget_and_names_them_all() {
    let vendors = [hangs(), hangs(), hangs()].map(Vendor::that);
    let waterfall = waterfall(&vendors).within(Duration::from_secs(10));
    let (told, ms) = ask_timed(&waterfall).await;
    assert_eq!(ms, 10_000);
    let Told::Error(text) = told else { panic!("{told:?}") };
    assert!(["alpha", "beta", "gamma"].iter().all(|name| text.contains(name)), "{text}");
}

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_it_leaves_nothing() {
    let vendors = [knows_nobody().after(10), hangs(), hangs()].map(Vendor::that);
    let waterfall = waterfall(&vendors).within(Duration::from_millis(40));
    let check = |ms| assert!(vendors.iter().all(|vendor| vendor.under_way() == 0), "{ms}");
    drop_at_each_ms(&waterfall, 45, check).await;
}

#[derive(Clone, Copy, Debug)]
enum Does {
    Finds,
    KnowsNobody,
    Fails,
    Hangs,
}

fn act(does: Does, index: usize) -> Act {
    match does {
        Does::Finds => finds(&format!("person-{index}")),
        Does::KnowsNobody => knows_nobody(),
        Does::Fails => fails(VendorErrorKind::Unavailable),
        Does::Hangs => hangs(),
    }
}

proptest! {
    #[test]
    fn the_answer_is_the_tables(
        does in prop::collection::vec(
            prop_oneof![Just(Does::Finds), Just(Does::KnowsNobody), Just(Does::Fails), Just(Does::Hangs)],
            1..=5,
        ),
        budget_ms in 50..20_000_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let vendors: Vec<_> = does.iter().enumerate().map(|(i, does)| Vendor::that(act(*does, i))).collect();
        let waterfall = waterfall(&vendors).within(Duration::from_millis(budget_ms));
        let (told, ms) = runtime.block_on(ask_timed(&waterfall));

        // first match wins; else any failure is an error; else no match
        let winner = does.iter().position(|does| matches!(does, Does::Finds));
        let any_failed = does.iter().any(|does| matches!(does, Does::Fails | Does::Hangs));
        match winner {
            Some(i) => prop_assert_eq!(&told, &found(&format!("person-{i}"))),
            None if any_failed => prop_assert!(matches!(told, Told::Error(_)), "{:?}", told),
            None => prop_assert_eq!(&told, &Told::Nobody),
        }
        for (i, vendor) in vendors.iter().enumerate() {
            prop_assert_eq!(vendor.asks(), usize::from(winner.is_none_or(|winner| i <= winner)));
            prop_assert_eq!(vendor.under_way(), 0);
        }
        prop_assert!(ms <= budget_ms + 1, "{} of {}", ms, budget_ms); // timers tick in milliseconds
    }
}
