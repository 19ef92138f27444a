use std::sync::Arc;
use std::time::Duration;

use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{BreakerState, CircuitBreaker, CircuitBreakerPolicy};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep, timeout};

use crate::scripted::{
    LookupResult, Vendor, fails, fails_untyped, finds, found, hangs, look_up, look_up_timed, no_match, start,
};

const PAUSE: Duration = Duration::from_secs(30);
const POLICY: CircuitBreakerPolicy =
    CircuitBreakerPolicy { window_calls: 10, calls_min: 4, failure_rate: 0.5, pause: PAUSE, probes: 2 };
const OPEN: LookupResult = LookupResult::VendorError(VendorErrorKind::CircuitOpen);

fn breaker(vendor: &Arc<Vendor>) -> Arc<CircuitBreaker> {
    Arc::new(CircuitBreaker::new(vendor.clone(), POLICY))
}

/// Returns a breaker that has just opened, around a vendor that finds Ada from now on.
async fn opened() -> (Arc<Vendor>, Arc<CircuitBreaker>) {
    let vendor = Vendor::new(fails(VendorErrorKind::Unavailable));
    let breaker = breaker(&vendor);
    for _ in 0..4 {
        assert_eq!(look_up(&*breaker).await, LookupResult::VendorError(VendorErrorKind::Unavailable));
    }
    assert_eq!(look_up(&*breaker).await, OPEN);
    vendor.set_behavior(finds("ada"));
    (vendor, breaker)
}

#[tokio::test(start_paused = true)]
async fn limits_probes_when_half_open() {
    let (vendor, breaker) = opened().await;
    vendor.set_behavior(finds("ada").after(100));
    sleep(PAUSE).await;
    let probes = [start(&breaker).await, start(&breaker).await];
    assert_eq!(look_up_timed(&*breaker).await, (OPEN, 0));
    assert_eq!(vendor.in_flight(), 2);
    for probe in probes {
        assert_eq!(probe.await.unwrap(), found("ada"));
    }
    assert_eq!(look_up(&*breaker).await, found("ada"));
}

#[tokio::test(start_paused = true)]
async fn ignores_calls_from_before_last_state_change() {
    let slow_failure = || fails(VendorErrorKind::Unavailable).after(PAUSE.as_millis() as u64 + 500);
    let vendor = Vendor::scripted((0..8).map(|_| slow_failure()), fails_untyped());
    let breaker = breaker(&vendor);
    let mut slow = Vec::new();
    for _ in 0..8 {
        slow.push(start(&breaker).await);
    }
    for _ in 0..4 {
        look_up(&*breaker).await;
    }
    assert_eq!(look_up(&*breaker).await, OPEN);
    vendor.set_behavior(finds("ada"));
    sleep(PAUSE).await;
    for _ in 0..2 {
        assert_eq!(look_up(&*breaker).await, found("ada"));
    }
    for call in slow {
        assert_eq!(call.await.unwrap(), LookupResult::VendorError(VendorErrorKind::Unavailable));
    }
    assert_eq!(
        look_up(&*breaker).await,
        found("ada"),
        "the failures of calls that began before the circuit opened do not count"
    );
}

#[tokio::test(start_paused = true)]
async fn zero_policy_opens_at_first_failure_and_closes_at_first_success() {
    let policy = CircuitBreakerPolicy {
        window_calls: 0,
        calls_min: 0,
        failure_rate: 0.5,
        pause: Duration::ZERO,
        probes: 0,
    };
    let vendor = Vendor::scripted([fails_untyped()], finds("ada"));
    let breaker = CircuitBreaker::new(vendor, policy);
    look_up(&breaker).await;
    assert_eq!(look_up(&breaker).await, found("ada"));
}

/// A second implementation, of calls one after the other: the results since the breaker has closed, and when
/// it has opened.
#[derive(Default)]
struct Model {
    has_failed: Vec<bool>,
    opened_at: Option<Instant>,
    is_probed: bool,
    successful_probes: usize,
}

impl Model {
    fn admits(&mut self) -> bool {
        let is_admitted = self.opened_at.is_none_or(|at| at.elapsed() >= PAUSE);
        self.is_probed = is_admitted && self.opened_at.is_some();
        is_admitted
    }

    fn state(&self) -> BreakerState {
        match self.opened_at {
            None => BreakerState::Closed,
            Some(_) if self.is_probed => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        }
    }

    /// Adds the result of an admitted call, or `None` if it does not count.
    fn add(&mut self, has_failed: Option<bool>) {
        let Some(has_failed) = has_failed else { return };
        if self.opened_at.is_some() {
            self.successful_probes += 1;
            if has_failed {
                *self = Self { opened_at: Some(Instant::now()), ..Self::default() };
            } else if self.successful_probes == POLICY.probes {
                *self = Self::default();
            }
            return;
        }
        self.has_failed.push(has_failed);
        let recent = &self.has_failed[self.has_failed.len().saturating_sub(POLICY.window_calls)..];
        let failures = recent.iter().filter(|failed| **failed).count();
        if has_failed && recent.len() >= POLICY.calls_min && 2 * failures >= recent.len() {
            *self = Self { opened_at: Some(Instant::now()), ..Self::default() };
        }
    }
}

#[tokio::test(start_paused = true)]
async fn matches_model_for_random_calls() {
    let mut opened = 0;
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let failure_rate = rng.random_range(0.1..0.9);
        let vendor = Vendor::new(no_match());
        let (breaker, mut model) = (breaker(&vendor), Model::default());
        for step in 0..100 {
            if rng.random_bool(0.1) {
                sleep(Duration::from_secs(rng.random_range(1..40))).await;
            }
            let (behavior, has_failed) = match rng.random_range(0..6) {
                0 => (fails(VendorErrorKind::RequestRejected), None),
                1 => (hangs(), None),
                _ if rng.random_bool(failure_rate) => (fails_untyped(), Some(true)),
                2 => (no_match(), Some(false)),
                _ => (finds("ada"), Some(false)),
            };
            vendor.set_behavior(behavior);
            let (calls, is_admitted) = (vendor.calls(), model.admits());
            // The client of a call that hangs leaves, which does not count.
            let result = timeout(Duration::from_millis(10), look_up(&*breaker)).await;
            assert_eq!(vendor.calls() - calls, usize::from(is_admitted), "seed {seed}, step {step}");
            if is_admitted {
                model.add(has_failed);
            } else {
                assert_eq!(result, Ok(OPEN), "seed {seed}, step {step}");
                opened += 1;
            }
            assert_eq!(breaker.state(), model.state(), "seed {seed}, step {step}");
        }
    }
    assert!(opened > 1_000, "{opened}");
}
