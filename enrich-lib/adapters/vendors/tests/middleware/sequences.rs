//! Faults of vendors in sequence, on the stack as [`ResolverStack`] builds it: they last, come back after
//! recovery and overlap.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{
    BreakerState, CircuitBreakerPolicy, ResolverStack, StackMonitor, VendorPolicy,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep, timeout};

use crate::scripted::{
    Behavior, LookupResult, Vendor, fails, fails_untyped, finds, found, hangs, look_up_person, no_match,
    opted_out, query,
};

const BUDGET: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(30);
const CONCURRENCY: usize = 4;
const QUEUE_MAX: usize = 2;

fn stack(alpha: &Arc<Vendor>, beta: &Arc<Vendor>) -> (Arc<dyn Resolver>, StackMonitor) {
    let mut policy = VendorPolicy::default();
    policy.timeout = Duration::from_millis(500);
    (policy.concurrency, policy.queue_max) = (CONCURRENCY, QUEUE_MAX);
    policy.tries_max = 1;
    policy.breaker =
        CircuitBreakerPolicy { window_calls: 10, calls_min: 4, failure_rate: 0.5, pause: PAUSE, probes: 2 };
    ResolverStack::new(BUDGET, opted_out(&[]))
        .vendor("alpha", alpha.clone(), policy)
        .vendor("beta", beta.clone(), policy)
        .build_with_monitor([7; 32])
}

/// Returns the states of the breakers of alpha and beta.
fn states(monitor: &StackMonitor) -> [BreakerState; 2] {
    let states: Vec<_> = monitor.breakers().map(|(_, state)| state).collect();
    states.try_into().expect("two vendors")
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Finds,
    Misses,
    Fails,
}

/// Draws the behaviour of a vendor for some time.
fn draw(rng: &mut StdRng, name: &str) -> (Kind, Behavior) {
    match rng.random_range(0..6) {
        0 | 1 => (Kind::Finds, finds(name).after(20)),
        2 => (Kind::Misses, no_match().after(20)),
        3 => (Kind::Fails, fails(VendorErrorKind::Unavailable).after(5)),
        4 => (Kind::Fails, fails_untyped()),
        _ => (Kind::Fails, hangs()),
    }
}

#[tokio::test(start_paused = true)]
async fn answers_follow_the_vendors_through_every_sequence_of_faults() {
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (alpha, beta) = (Vendor::new(no_match()), Vendor::new(no_match()));
        let (resolver, monitor) = stack(&alpha, &beta);
        for _ in 0..8 {
            let ((a, first), (b, second)) = (draw(&mut rng, "alpha"), draw(&mut rng, "beta"));
            alpha.set_behavior(first);
            beta.set_behavior(second);
            // A queue is full only if there are more people than its places and the permits.
            let people = [CONCURRENCY + QUEUE_MAX, 9][rng.random_range(0..2)];
            let is_closed = states(&monitor).map(|state| state == BreakerState::Closed);
            let expected = match (a, b) {
                _ if people > CONCURRENCY + QUEUE_MAX => None,
                (Kind::Finds, _) if is_closed[0] => Some(found("alpha")),
                (Kind::Misses, Kind::Finds) if is_closed == [true; 2] => Some(found("beta")),
                (Kind::Misses, Kind::Misses) if is_closed == [true; 2] => Some(LookupResult::NoMatch),
                _ => None,
            };
            let mut lookups = Vec::new();
            for _ in 0..rng.random_range(1..40) {
                let (resolver, email) =
                    (resolver.clone(), format!("ada{}@posteo.net", rng.random_range(0..people)));
                // Some clients leave.
                let patience = if rng.random_bool(0.1) { 15 } else { 3_600_000 };
                lookups.push(tokio::spawn(async move {
                    let (query, started) = (query(&email), Instant::now());
                    let result =
                        timeout(Duration::from_millis(patience), resolver.find(&query)).await.ok()?;
                    assert!(started.elapsed() <= BUDGET);
                    Some(LookupResult::from(&result))
                }));
                sleep(Duration::from_millis(rng.random_range(0..=10))).await;
            }
            for lookup in lookups {
                let Some(result) = lookup.await.expect("no panic") else { continue };
                // A later source may answer for one that fails or is skipped. "No match" needs the answers of
                // all.
                let is_allowed = match &result {
                    LookupResult::Found(name) if name == "alpha" => a == Kind::Finds,
                    LookupResult::Found(_) => b == Kind::Finds,
                    LookupResult::NoMatch => (a, b) == (Kind::Misses, Kind::Misses),
                    LookupResult::VendorError(_) | LookupResult::OtherError(_) => expected.is_none(),
                };
                assert!(is_allowed, "seed {seed}: {result:?} of {a:?} and {b:?}");
                assert!(
                    expected.as_ref().is_none_or(|expected| result == *expected),
                    "seed {seed}: {result:?}"
                );
            }
            for vendor in [&alpha, &beta] {
                assert!(vendor.in_flight_max() <= CONCURRENCY, "seed {seed}: {}", vendor.in_flight_max());
                assert_eq!(vendor.in_flight(), 0, "seed {seed}");
            }
            sleep(Duration::from_secs(rng.random_range(0..40))).await;
        }
        // Both vendors recover, one after the other, within the pause.
        alpha.set_behavior(no_match());
        beta.set_behavior(no_match());
        sleep(PAUSE).await;
        for number in 0..10 {
            assert_eq!(look_up_person(&*resolver, number).await, LookupResult::NoMatch, "seed {seed}");
        }
        assert_eq!(states(&monitor), [BreakerState::Closed; 2], "seed {seed}");

        // Half of the last calls of one fail, and then its probe.
        let bad = [fails(VendorErrorKind::Unavailable), fails_untyped(), hangs()];
        alpha.set_behavior(bad[seed as usize % bad.len()].clone());
        for calls in [5, 1] {
            let before = alpha.calls();
            for number in 0..20 {
                assert_ne!(
                    look_up_person(&*resolver, 100 * calls + number).await,
                    LookupResult::NoMatch,
                    "seed {seed}"
                );
            }
            assert_eq!(alpha.calls() - before, calls, "seed {seed}");
            assert_eq!(states(&monitor), [BreakerState::Open, BreakerState::Closed], "seed {seed}");
            sleep(PAUSE).await;
        }
    }
}
