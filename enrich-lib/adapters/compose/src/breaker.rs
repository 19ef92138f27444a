//! A vendor that keeps failing is left alone for a while.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use tokio::time::Instant;

use crate::circuit::{BreakerPolicy, Circuit, Outcome, Ticket};
use crate::fault::{FaultKind, VendorFault};
use crate::lock::lock;

/// A resolver that is not asked while it fails too often: lookups then fail at once as [`FaultKind::BreakerOpen`].
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
/// "No match" is a success. A fault that [is not the vendor's](VendorFault::is_the_vendors) counts as neither success nor
/// failure, and so does a call that is dropped: the caller gave up, perhaps after a long wait elsewhere. A vendor that
/// hangs is noticed by a [`Deadline`](crate::Deadline) inside the breaker, which has to be shorter than those around it.
pub struct Breaker {
    resolver: Arc<dyn Resolver>,
    policy: BreakerPolicy,
    circuit: Mutex<Circuit>,
}

/// A call that was let through. It is counted when it is dropped, wherever that is.
struct Call<'a> {
    breaker: &'a Breaker,
    ticket: Ticket,
    outcome: Outcome,
}

impl Breaker {
    /// `resolver`, guarded by this policy. No number of calls in it is below one.
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
        let ticket = admitted.ok_or(FaultKind::BreakerOpen)?;
        let mut call = Call { breaker: self, ticket, outcome: Outcome::ToldNothing };
        let found = self.resolver.find(query).await;
        call.outcome = match &found {
            Ok(_) => Outcome::Succeeded,
            Err(error) if VendorFault::of(error).is_none_or(VendorFault::is_the_vendors) => Outcome::Failed,
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
