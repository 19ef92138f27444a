use std::sync::{Arc, Mutex};
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{Waterfall, WaterfallError};
use proptest::prelude::*;

use crate::scripted::{
    Behavior, LookupResult, Vendor, ada, fails, fails_untyped, finds, found, hangs, look_up, look_up_timed,
    no_match,
};

fn waterfall(vendors: &[Arc<Vendor>]) -> Waterfall {
    let names = ["alpha", "beta", "gamma", "delta", "epsilon"];
    let first = Waterfall::new().then(names[0], vendors[0].clone());
    let rest = names[1..].iter().zip(&vendors[1..]);
    rest.fold(first, |waterfall, (name, vendor)| waterfall.then(name, vendor.clone()))
}

#[tokio::test(start_paused = true)]
async fn fails_with_vendor_names_when_some_vendors_failed() {
    let vendors = [fails(VendorErrorKind::KeyRejected), no_match(), fails_untyped()].map(Vendor::new);
    let error = waterfall(&vendors).find(&ada()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "2 of 3 vendors failed; alpha: the vendor rejected the API key; gamma: it broke"
    );
    let error: &WaterfallError = error.downcast_ref().unwrap();
    let names: Vec<_> = error.failures().map(|(name, _)| name).collect();
    assert_eq!(names, ["alpha", "gamma"]);
}

#[tokio::test(start_paused = true)]
async fn reports_failure_even_if_a_later_vendor_matches() {
    let result = Arc::new(Mutex::new(Vec::new()));
    let log = result.clone();
    let vendors = [fails(VendorErrorKind::KeyRejected), no_match(), finds("ada")].map(Vendor::new);
    let waterfall = waterfall(&vendors).on_failure(move |query, name, error| {
        log.lock().unwrap().push(format!("{} {name}: {error}", query.workspace));
    });
    assert_eq!(look_up(&waterfall).await, found("ada"));
    assert_eq!(*result.lock().unwrap(), ["demo alpha: the vendor rejected the API key"]);
}

#[tokio::test(start_paused = true)]
async fn hanging_vendor_leaves_other_shares_untouched() {
    let vendors = [hangs(), finds("ada").after(900), finds("bob")].map(Vendor::new);
    let waterfall = waterfall(&vendors).budget(Duration::from_secs(3));
    assert_eq!(look_up_timed(&waterfall).await, (found("ada"), 1_900));
    assert_eq!(vendors[0].in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn unused_time_passes_to_next_vendors() {
    let vendors = [no_match(), no_match().after(100), finds("ada").after(2_800)].map(Vendor::new);
    let waterfall = waterfall(&vendors).budget(Duration::from_secs(3));
    assert_eq!(look_up_timed(&waterfall).await, (found("ada"), 2_900));
}

#[tokio::test(start_paused = true)]
async fn fails_at_end_of_budget_with_all_names_when_all_hang() {
    let vendors = [hangs(), hangs(), hangs()].map(Vendor::new);
    let waterfall = waterfall(&vendors).budget(Duration::from_secs(10));
    let (result, ms) = look_up_timed(&waterfall).await;
    assert_eq!(ms, 10_000);
    let LookupResult::OtherError(text) = result else { panic!("{result:?}") };
    assert!(["alpha", "beta", "gamma"].iter().all(|name| text.contains(name)), "{text}");
}

#[derive(Clone, Copy, Debug)]
enum Does {
    Finds,
    NoMatch,
    Fails,
    Hangs,
}

fn act(does: Does, index: usize) -> Behavior {
    match does {
        Does::Finds => finds(&format!("person-{index}")),
        Does::NoMatch => no_match(),
        Does::Fails => fails(VendorErrorKind::Unavailable),
        Does::Hangs => hangs(),
    }
}

proptest! {
    #[test]
    fn matches_model_for_random_vendors(
        does in prop::collection::vec(
            prop_oneof![Just(Does::Finds), Just(Does::NoMatch), Just(Does::Fails), Just(Does::Hangs)],
            1..=5,
        ),
        budget_ms in 50..20_000_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let vendors: Vec<_> = does.iter().enumerate().map(|(i, does)| Vendor::new(act(*does, i))).collect();
        let waterfall = waterfall(&vendors).budget(Duration::from_millis(budget_ms));
        let (result, ms) = runtime.block_on(look_up_timed(&waterfall));

        // first match wins; else any failure is an error; else no match
        let winner = does.iter().position(|does| matches!(does, Does::Finds));
        let any_failed = does.iter().any(|does| matches!(does, Does::Fails | Does::Hangs));
        match winner {
            Some(i) => prop_assert_eq!(&result, &found(&format!("person-{i}"))),
            None if any_failed => prop_assert!(matches!(result, LookupResult::OtherError(_)), "{:?}", result),
            None => prop_assert_eq!(&result, &LookupResult::NoMatch),
        }
        for (i, vendor) in vendors.iter().enumerate() {
            prop_assert_eq!(vendor.calls(), usize::from(winner.is_none_or(|winner| i <= winner)));
            prop_assert_eq!(vendor.in_flight(), 0);
        }
        prop_assert!(ms <= budget_ms + 1, "{} of {}", ms, budget_ms); // timers tick in milliseconds
    }
}
