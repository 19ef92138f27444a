//! A circuit breaker: suspends calls to a vendor that keeps failing.

use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorError, VendorErrorKind};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::circuit::{Admission, BreakerState, Circuit, CircuitBreakerPolicy, Outcome};

/// A resolver that rejects lookups with [`VendorErrorKind::CircuitOpen`] while too many of its recent calls
/// failed.
///
/// ```text
///            too many recent calls failed
///   closed ──────────────────────────────────► open
///     ▲                                        │ ▲
///     │ all probes succeeded     the pause has │ │ a probe failed
///     │                          elapsed       ▼ │
///     └───────────────────────────────────── half-open
/// ```
///
/// "No match" is a success. An error for which [`VendorError::is_vendor_failure`] is false counts as neither
/// success nor failure. Only the last call about each person counts, so that a client that repeats a failing
/// lookup does not open the breaker for all. A dropped call does not count either, as the caller may have spent
/// its time elsewhere. To detect a vendor that hangs, place a [`Deadline`](super::Deadline) inside the breaker.
/// It must be shorter than the deadlines around the breaker.
#[derive(derive_more::Debug)]
#[debug("CircuitBreaker {{ policy: {policy:?}, .. }}")]
pub struct CircuitBreaker {
    resolver: Arc<dyn Resolver>,
    policy: CircuitBreakerPolicy,
    circuit: Arc<Mutex<Circuit>>,
}

/// An admitted call. Its outcome is recorded on drop, so that a cancelled call also frees its probe slot.
struct Call<'a> {
    breaker: &'a CircuitBreaker,
    admission: Admission,
    outcome: Outcome,
}

impl CircuitBreaker {
    /// Wraps `resolver` with a breaker. Call counts in `policy` below one are raised to one.
    pub fn new(resolver: Arc<dyn Resolver>, policy: CircuitBreakerPolicy) -> Self {
        let window_calls = policy.window_calls.max(1);
        let calls_min = policy.calls_min.clamp(1, window_calls);
        let policy = CircuitBreakerPolicy { window_calls, calls_min, probes: policy.probes.max(1), ..policy };
        Self { resolver, policy, circuit: Arc::default() }
    }

    /// Wraps another resolver of the same vendor, with the same state.
    pub(crate) fn around(&self, resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, policy: self.policy, circuit: self.circuit.clone() }
    }

    /// Returns whether a lookup would be admitted now.
    pub(crate) fn admits(&self) -> bool {
        self.circuit.lock().admits(&self.policy, Instant::now())
    }

    /// Returns the state. An open breaker stays open until the first call after its pause.
    pub fn state(&self) -> BreakerState {
        self.circuit.lock().state()
    }
}

#[async_trait]
impl Resolver for CircuitBreaker {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let person = query.email.opt_out_form();
        let admitted = self.circuit.lock().admit(&self.policy, Instant::now(), &person);
        let admission = admitted.ok_or(VendorErrorKind::CircuitOpen)?;
        let mut call = Call { breaker: self, admission, outcome: Outcome::Ignored };
        let result = self.resolver.find(query).await;
        call.outcome = match &result {
            Ok(_) => Outcome::Succeeded,
            Err(error) if VendorError::find_in(error).is_none_or(VendorError::is_vendor_failure) => {
                Outcome::Failed
            }
            Err(_) => Outcome::Ignored,
        };
        result
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let Self { breaker, admission, outcome } = self;
        breaker.circuit.lock().record(&breaker.policy, Instant::now(), *admission, *outcome);
    }
}
