//! The state machine of a circuit breaker. It reads no clock: `now` is an argument.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// When a breaker opens and closes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CircuitBreakerPolicy {
    /// Size of the sliding window: the number of recent calls that count, regardless of their age. Only the last
    /// call about each person counts.
    pub window_calls: usize,
    /// Minimum number of calls in the window, one for each person, before the breaker can open.
    pub calls_min: usize,
    /// Failure rate in the window at which the breaker opens, from 0 to 1.
    pub failure_rate: f64,
    /// How long the breaker stays open.
    pub pause: Duration,
    /// Number of calls admitted after the pause. The breaker closes when all of them succeeded and opens when
    /// one failed. A call about a person does not count if it fails as it did before the pause.
    pub probes: usize,
}

impl Default for CircuitBreakerPolicy {
    fn default() -> Self {
        let pause = Duration::from_secs(30);
        Self { window_calls: 20, calls_min: 10, failure_rate: 0.5, pause, probes: 2 }
    }
}

/// The state of a circuit breaker. Exhaustive: there are these three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls are admitted.
    Closed,
    /// Some calls are admitted after a pause, to find out whether the vendor works again.
    HalfOpen,
    /// Calls are rejected, because too many failed.
    Open,
}

/// The state of a breaker. See [`CircuitBreaker`](super::CircuitBreaker) for the diagram.
#[derive(Default)]
pub(crate) struct Circuit {
    state: State,
    generation: Generation,
    /// The last results since the breaker was closed, oldest first, one for each person. `true` is a failure.
    results: VecDeque<(PersonHash, bool)>,
    hasher: RandomState,
}

/// Identifies a person within one circuit.
type PersonHash = u64;

/// An admitted call.
#[derive(Clone, Copy)]
pub(crate) struct Admission {
    generation: Generation,
    person: PersonHash,
}

#[derive(Default)]
enum State {
    #[default]
    Closed,
    Open {
        since: Instant,
    },
    HalfOpen {
        in_flight: usize,
        succeeded: usize,
    },
}

/// The number of state changes. The result of a call from an earlier generation is ignored.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Generation(u64);

/// The result of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
    /// The result is independent of the vendor's health.
    Ignored,
}

impl Circuit {
    /// Returns whether a call would be admitted.
    pub(crate) fn admits(&self, policy: &CircuitBreakerPolicy, now: Instant) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { since } => now.duration_since(since) >= policy.pause,
            State::HalfOpen { in_flight, succeeded } => in_flight + succeeded < policy.probes,
        }
    }

    /// Admits or rejects a call about `person`. Each admitted call must be [recorded](Circuit::record) once.
    pub(crate) fn admit(
        &mut self,
        policy: &CircuitBreakerPolicy,
        now: Instant,
        person: &str,
    ) -> Option<Admission> {
        if !self.admits(policy, now) {
            return None;
        }
        match &mut self.state {
            State::Closed => {}
            State::Open { .. } => self.transition_to(State::HalfOpen { in_flight: 1, succeeded: 0 }),
            State::HalfOpen { in_flight, .. } => *in_flight += 1,
        }
        Some(Admission { generation: self.generation, person: self.hasher.hash_one(person) })
    }

    /// Records the result of a call that completed or was dropped.
    pub(crate) fn record(
        &mut self,
        policy: &CircuitBreakerPolicy,
        now: Instant,
        Admission { generation, person }: Admission,
        outcome: Outcome,
    ) {
        if generation != self.generation {
            return;
        }
        let has_failed = outcome == Outcome::Failed;
        match &mut self.state {
            State::Closed if outcome != Outcome::Ignored => {
                self.keep(policy, person, has_failed);
                let failures = self.results.iter().filter(|(_, failed)| *failed).count();
                let is_failing = failures as f64 >= policy.failure_rate * self.results.len() as f64;
                if has_failed && is_failing && self.results.len() >= policy.calls_min {
                    self.transition_to(State::Open { since: now });
                }
            }
            State::HalfOpen { in_flight, succeeded } => {
                *in_flight -= 1;
                *succeeded += usize::from(outcome == Outcome::Succeeded);
                if has_failed && !self.results.contains(&(person, true)) {
                    self.keep(policy, person, true);
                    self.transition_to(State::Open { since: now });
                } else if *succeeded >= policy.probes {
                    self.results.clear();
                    self.transition_to(State::Closed);
                }
            }
            State::Closed | State::Open { .. } => {}
        }
    }

    /// Replaces the earlier result of the person, so that a client that repeats one lookup opens no breaker.
    fn keep(&mut self, policy: &CircuitBreakerPolicy, person: PersonHash, has_failed: bool) {
        self.results.retain(|(other, _)| *other != person);
        self.results.push_back((person, has_failed));
        if self.results.len() > policy.window_calls {
            self.results.pop_front();
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    fn transition_to(&mut self, state: State) {
        self.state = state;
        self.generation.0 += 1;
    }
}
