//! The state machine of a circuit breaker. It reads no clock: `now` is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// When a breaker opens and closes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerPolicy {
    /// Size of the sliding window: the number of recent calls that count, regardless of their age.
    pub window_calls: usize,
    /// Minimum number of calls in the window before the breaker can open.
    pub calls_min: usize,
    /// Failure rate in the window at which the breaker opens, from 0 to 1.
    pub failure_rate: f64,
    /// How long the breaker stays open.
    pub pause: Duration,
    /// Number of calls admitted after the pause. The breaker closes when all of them succeeded and opens when one failed.
    pub probes: usize,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        let pause = Duration::from_secs(30);
        Self { window_calls: 20, calls_min: 10, failure_rate: 0.5, pause, probes: 2 }
    }
}

/// The state of a breaker. See [`Breaker`](crate::Breaker) for the diagram.
pub(crate) struct Circuit {
    state: State,
    /// Number of state changes.
    changes: u64,
}

enum State {
    /// Results of the last calls, oldest first. `true` is a failure.
    Closed(VecDeque<bool>),
    Open {
        since: Instant,
    },
    HalfOpen {
        under_way: usize,
        succeeded: usize,
    },
}

/// The number of state changes when a call was admitted. The result of a call is ignored after another state change.
#[derive(Clone, Copy)]
pub(crate) struct Ticket(u64);

/// The result of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
    /// The result is not evidence of the vendor's health.
    ToldNothing,
}

impl Circuit {
    /// Admits or rejects a call. Each admitted call must be [counted](Circuit::count) once.
    pub(crate) fn admit(&mut self, policy: &BreakerPolicy, now: Instant) -> Option<Ticket> {
        match &mut self.state {
            State::Closed(_) => {}
            State::Open { since } if now.duration_since(*since) < policy.pause => return None,
            State::Open { .. } => self.turn(State::HalfOpen { under_way: 1, succeeded: 0 }),
            State::HalfOpen { under_way, succeeded } if *under_way + *succeeded < policy.probes => {
                *under_way += 1;
            }
            State::HalfOpen { .. } => return None,
        }
        Some(Ticket(self.changes))
    }

    /// Counts a call that completed or was dropped.
    pub(crate) fn count(&mut self, policy: &BreakerPolicy, now: Instant, ticket: Ticket, outcome: Outcome) {
        if ticket.0 != self.changes {
            return;
        }
        match &mut self.state {
            State::Closed(window) if outcome != Outcome::ToldNothing => {
                window.push_back(outcome == Outcome::Failed);
                if window.len() > policy.window_calls {
                    window.pop_front();
                }
                let failures = window.iter().filter(|failed| **failed).count();
                let is_failing = failures as f64 >= policy.failure_rate * window.len() as f64;
                if outcome == Outcome::Failed && is_failing && window.len() >= policy.calls_min {
                    self.turn(State::Open { since: now });
                }
            }
            State::HalfOpen { under_way, succeeded } => {
                *under_way -= 1;
                *succeeded += usize::from(outcome == Outcome::Succeeded);
                if outcome == Outcome::Failed {
                    self.turn(State::Open { since: now });
                } else if *succeeded >= policy.probes {
                    self.turn(State::Closed(VecDeque::new()));
                }
            }
            State::Closed(_) | State::Open { .. } => {}
        }
    }

    fn turn(&mut self, state: State) {
        self.state = state;
        self.changes += 1;
    }
}

impl Default for Circuit {
    fn default() -> Self {
        Self { state: State::Closed(VecDeque::new()), changes: 0 }
    }
}
