//! A circuit breaker: suspends calls to a vendor that keeps failing.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use tokio::time::Instant;

use crate::circuit::{BreakerPolicy, Circuit, Outcome, Ticket};
use crate::error::{VendorError, VendorErrorKind};
use crate::lock::lock;

/// A resolver that rejects lookups with [`VendorErrorKind::BreakerOpen`] while too many of its recent calls failed.
///
/// ```text
///            too many of the last calls failed
///   closed ──────────────────────────────────► open
///     ▲                                        │ ▲
///     │ all probes succeeded        the pause  │ │ a probe failed
///     │                             is over    ▼ │
///     └───────────────────────────────────── half-open
/// ```
///
/// "No match" is a success. An error for which [`VendorError::is_the_vendors`] is false counts as neither success nor
/// failure. A dropped call does not count either, as the caller may have spent its time elsewhere. To detect a vendor that
/// hangs, place a [`Deadline`](crate::Deadline) inside the breaker. It must be shorter than the deadlines around the
/// breaker.
pub struct Breaker {
    resolver: Arc<dyn Resolver>,
    policy: BreakerPolicy,
    circuit: Mutex<Circuit>,
}

/// An admitted call. Its outcome is recorded on drop, so that a cancelled call also frees its probe slot.
struct Call<'a> {
    breaker: &'a Breaker,
    ticket: Ticket,
    outcome: Outcome,
}

impl Breaker {
    /// Wraps `resolver` with a breaker. Call counts in `policy` below one are raised to one.
    pub fn new(resolver: Arc<dyn Resolver>, policy: BreakerPolicy) -> Self {
        let window_calls = policy.window_calls.max(1);
        let calls_min = policy.calls_min.clamp(1, window_calls);
        let policy = BreakerPolicy { window_calls, calls_min, probes: policy.probes.max(1), ..policy };
        Self { resolver, policy, circuit: Mutex::default() }
    }
}

#[async_trait]
impl Resolver for Breaker {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        let admitted = lock(&self.circuit).admit(&self.policy, Instant::now());
        let ticket = admitted.ok_or(VendorErrorKind::BreakerOpen)?;
        let mut call = Call { breaker: self, ticket, outcome: Outcome::ToldNothing };
        let found = self.resolver.find(query).await;
        call.outcome = match &found {
            Ok(_) => Outcome::Succeeded,
            Err(error) if VendorError::of(error).is_none_or(VendorError::is_the_vendors) => Outcome::Failed,
            Err(_) => Outcome::ToldNothing,
        };
        found
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        lock(&self.breaker.circuit).count(&self.breaker.policy, Instant::now(), self.ticket, self.outcome);
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker").field("policy", &self.policy).finish_non_exhaustive()
    }
}
