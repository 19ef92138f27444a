//! Vendors in a fixed order: random vendors, compared with a model.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::Waterfall;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::scripted::{
    Behavior, LookupResult, Vendor, fails, fails_untyped, finds, found, look_up_timed, no_match, panics,
    paused_runtime,
};

const NAMES: [&str; 5] = ["alpha", "beta", "gamma", "delta", "epsilon"];

#[derive(Clone, Copy, Debug)]
enum Does {
    Finds,
    NoMatch,
    Fails,
    FailsUntyped,
    Panics,
}

/// The behaviour of a vendor, and its delay in milliseconds, which may be longer than its share.
fn vendor() -> impl Strategy<Value = (Does, u64)> {
    let does = vec![Does::Finds, Does::NoMatch, Does::NoMatch, Does::Fails, Does::FailsUntyped, Does::Panics];
    (prop::sample::select(does), prop_oneof![Just(0), 0..300_u64, 0..20_000_u64])
}

fn behavior(index: usize, (does, ms): (Does, u64)) -> Behavior {
    let behavior = match does {
        Does::Finds => finds(&format!("person-{index}")),
        Does::NoMatch => no_match(),
        Does::Fails => fails(VendorErrorKind::KeyRejected),
        Does::FailsUntyped => fails_untyped(),
        Does::Panics => panics(),
    };
    behavior.after(ms)
}

/// A second implementation. Returns the index of the vendor that finds the person, the milliseconds that the
/// lookup takes, and the failures before.
fn expected(vendors: &[(Does, u64)], budget_ms: u64) -> (Option<usize>, u64, Vec<String>) {
    let (mut now, mut failures) = (0, Vec::new());
    for (index, (does, ms)) in vendors.iter().enumerate() {
        // Timers have a resolution of 1 ms.
        let share = (budget_ms - now).div_ceil((vendors.len() - index) as u64);
        now += share.min(*ms);
        let error = match does {
            _ if *ms > share => VendorErrorKind::TimedOut.to_string(),
            Does::Finds => return (Some(index), now, failures),
            Does::NoMatch => continue,
            Does::Fails => VendorErrorKind::KeyRejected.to_string(),
            Does::FailsUntyped => "it broke".to_owned(),
            Does::Panics => "the resolver panicked".to_owned(),
        };
        failures.push(format!("{}: {error}", NAMES[index]));
    }
    (None, now, failures)
}

proptest! {
    #[test]
    fn matches_model_for_random_vendors(does in vec(vendor(), 1..=5), budget_ms in 50..20_000_u64) {
        let behaviors = does.iter().enumerate().map(|(index, does)| behavior(index, *does));
        let vendors: Vec<_> = behaviors.map(Vendor::new).collect();
        let reported = Arc::new(Mutex::new(Vec::new()));
        let report = reported.clone();
        let empty = Waterfall::new(Duration::from_millis(budget_ms), move |query, name, error| {
            assert_eq!(query.workspace.as_str(), "demo");
            report.lock().unwrap().push(format!("{name}: {error}"));
        });
        let named = NAMES.iter().zip(&vendors);
        let waterfall = named.fold(empty, |waterfall, (name, vendor)| waterfall.then(name, vendor.clone()));
        let (result, ms) = paused_runtime().block_on(look_up_timed(&waterfall));

        let (winner, expected_ms, failures) = expected(&does, budget_ms);
        let count = format!("{} of {} vendors failed; ", failures.len(), vendors.len());
        prop_assert_eq!(&*reported.lock().unwrap(), &failures);
        prop_assert_eq!(result, match winner {
            Some(index) => found(&format!("person-{index}")),
            None if failures.is_empty() => LookupResult::NoMatch,
            None => LookupResult::OtherError(count + &failures.join("; ")),
        });
        prop_assert_eq!(ms, expected_ms);
        for (index, vendor) in vendors.iter().enumerate() {
            prop_assert_eq!(vendor.calls(), usize::from(winner.is_none_or(|winner| index <= winner)));
            prop_assert_eq!(vendor.in_flight(), 0);
        }
    }
}
