//! The circuit breaker: random calls that overlap, compared with a model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{BreakerState, CircuitBreaker, CircuitBreakerPolicy};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use crate::scripted::{LookupResult, Vendor, fails, fails_untyped, finds, hangs, look_up_person, no_match};

const PAUSE: Duration = Duration::from_secs(30);
const POLICY: CircuitBreakerPolicy =
    CircuitBreakerPolicy { window_calls: 10, calls_min: 4, failure_rate: 0.5, pause: PAUSE, probes: 2 };
const OPEN: LookupResult = LookupResult::VendorError(VendorErrorKind::CircuitOpen);

/// The lowest values. Counts below one are raised to one.
const LOWEST: CircuitBreakerPolicy = CircuitBreakerPolicy {
    window_calls: 0,
    calls_min: 0,
    failure_rate: 0.5,
    pause: Duration::ZERO,
    probes: 0,
};
const RAISED: CircuitBreakerPolicy =
    CircuitBreakerPolicy { window_calls: 1, calls_min: 1, probes: 1, ..LOWEST };

/// A second implementation.
#[derive(Default)]
struct Model {
    policy: CircuitBreakerPolicy,
    /// The number of state changes. A call counts only in the state in which it began.
    changes: usize,
    /// The people and results of all calls since the breaker has closed.
    calls: Vec<(usize, bool)>,
    opened_at: Option<Instant>,
    is_half_open: bool,
    probes_in_flight: usize,
    successful_probes: usize,
}

impl Model {
    /// Begins a call. Returns the state in which it began, or `None` if it is rejected.
    fn admit(&mut self) -> Option<usize> {
        if let Some(opened_at) = self.opened_at {
            if opened_at.elapsed() < self.policy.pause {
                return None;
            }
            if !self.is_half_open {
                *self = Self { is_half_open: true, ..self.changed() };
                self.opened_at = Some(opened_at);
            }
            if self.probes_in_flight + self.successful_probes == self.policy.probes {
                return None;
            }
            self.probes_in_flight += 1;
        }
        Some(self.changes)
    }

    /// Returns the last result of each person, latest first.
    fn recent(&self) -> Vec<(usize, bool)> {
        let mut recent: Vec<(usize, bool)> = Vec::new();
        for call in self.calls.iter().rev() {
            if recent.len() < self.policy.window_calls && recent.iter().all(|later| later.0 != call.0) {
                recent.push(*call);
            }
        }
        recent
    }

    /// Ends a call about a person that began in a state. `has_failed` is `None` if its result does not count.
    fn end(&mut self, state: usize, person: usize, has_failed: Option<bool>) {
        if state != self.changes {
            return;
        }
        if self.is_half_open {
            self.probes_in_flight -= 1;
            self.successful_probes += usize::from(has_failed == Some(false));
            if has_failed == Some(true) && !self.recent().contains(&(person, true)) {
                self.calls.push((person, true));
                *self = Self { opened_at: Some(Instant::now()), ..self.changed() };
            } else if self.successful_probes == self.policy.probes {
                *self = Self { calls: Vec::new(), ..self.changed() };
            }
            return;
        }
        let Some(has_failed) = has_failed else { return };
        self.calls.push((person, has_failed));
        let recent = self.recent();
        let failures = recent.iter().filter(|(_, failed)| *failed).count();
        if has_failed && recent.len() >= self.policy.calls_min && 2 * failures >= recent.len() {
            *self = Self { opened_at: Some(Instant::now()), ..self.changed() };
        }
    }

    fn changed(&self) -> Self {
        Self { policy: self.policy, changes: self.changes + 1, calls: self.calls.clone(), ..Self::default() }
    }

    fn state(&self) -> BreakerState {
        match self.opened_at {
            None => BreakerState::Closed,
            Some(_) if self.is_half_open => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        }
    }
}

/// Calls overlap and take up to 40 s. Several are about one person. Some are dropped, some end after the breaker has
/// changed its state.
#[tokio::test(start_paused = true)]
async fn matches_model_for_random_calls_that_overlap() {
    let (mut rejected, mut late) = (0, 0);
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let failure_rate = rng.random_range(0.1..0.9);
        let vendor = Vendor::new(no_match());
        let (policy, raised) = if seed % 3 == 0 { (LOWEST, RAISED) } else { (POLICY, POLICY) };
        let breaker = Arc::new(CircuitBreaker::new(vendor.clone(), policy));
        let mut model = Model { policy: raised, ..Model::default() };
        let people = *[1, 5, 30].choose(&mut rng).unwrap();
        let mut in_flight = BTreeMap::new();
        for step in 0..200 {
            if in_flight.len() < 8 && rng.random_bool(0.5) {
                // No two calls end at the same time, and none when another one begins.
                let mut ends_at = Instant::now();
                let seconds_max = *[0, 0, 1, 40].choose(&mut rng).unwrap();
                ends_at += Duration::from_millis(2 * rng.random_range(0..=500 * seconds_max) + 1);
                while in_flight.contains_key(&ends_at) {
                    ends_at += Duration::from_millis(2);
                }
                let time = ends_at - Instant::now();
                let ms = time.as_millis() as u64;
                let (behavior, has_failed) = match rng.random_range(0..6) {
                    0 => (fails(VendorErrorKind::RequestRejected).after(ms), None),
                    1 => (hangs(), None),
                    _ if rng.random_bool(failure_rate) => (fails_untyped().after(ms), Some(true)),
                    2 => (no_match().after(ms), Some(false)),
                    _ => (finds("ada").after(ms), Some(false)),
                };
                vendor.set_behavior(behavior);
                let (calls, admitted) = (vendor.calls(), model.admit());
                let (breaker, person) = (breaker.clone(), rng.random_range(0..people));
                // The client of a call that hangs leaves.
                let time_max = time + Duration::from_millis(u64::from(has_failed.is_some()));
                let call =
                    tokio::spawn(async move { timeout(time_max, look_up_person(&*breaker, person)).await });
                yield_now().await;
                assert_eq!(
                    vendor.calls() - calls,
                    usize::from(admitted.is_some()),
                    "seed {seed}, step {step}"
                );
                match admitted {
                    Some(state) => drop(in_flight.insert(ends_at, (state, person, has_failed))),
                    None => {
                        assert_eq!(call.await.unwrap(), Ok(OPEN), "seed {seed}, step {step}");
                        rejected += 1;
                    }
                }
            } else {
                let seconds_max = *[1, 1, 40].choose(&mut rng).unwrap();
                let until =
                    Instant::now() + Duration::from_millis(2 * rng.random_range(1..=500 * seconds_max));
                while let Some(call) = in_flight.first_entry().filter(|call| *call.key() < until) {
                    sleep_until(*call.key()).await;
                    yield_now().await;
                    let (state, person, has_failed) = call.remove();
                    late += usize::from(state != model.changes);
                    model.end(state, person, has_failed);
                }
                sleep_until(until).await;
            }
            assert_eq!(breaker.state(), model.state(), "seed {seed}, step {step}");
        }
    }
    assert!(rejected > 1_000 && late > 100, "{rejected} {late}");
}
