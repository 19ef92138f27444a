//! A failure that passes is not the client's.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};

use crate::fault::VendorFault;
use crate::lock::lock;

/// A resolver that is asked again, if its fault [is safe to repeat](VendorFault::is_safe_to_repeat); other failures,
/// and the last one, are passed on as they are.
///
/// Pauses grow exponentially with full jitter: each is random, from nothing up to a ceiling that doubles. A vendor's
/// `Retry-After` comes before that. A pause that is longer than what is left of the budget is not begun.
pub struct Retry {
    resolver: Arc<dyn Resolver>,
    policy: RetryPolicy,
    dice: Mutex<StdRng>,
}

/// How often a lookup is tried, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The most tries of one lookup, the first included.
    pub tries_max: u32,
    /// The ceiling of the first pause.
    pub pause_first: Duration,
    /// The ceiling of every pause, but for a `Retry-After`.
    pub pause_max: Duration,
    /// No try begins later than this after the first: the budget of the [`Deadline`](crate::Deadline) around it, which
    /// also ends a try that hangs.
    pub budget: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries_max: 3,
            pause_first: Duration::from_millis(100),
            pause_max: Duration::from_secs(2),
            budget: Duration::from_secs(3),
        }
    }
}

impl Retry {
    /// `resolver`, asked by this policy; `seed` makes the jitter.
    pub fn new(resolver: Arc<dyn Resolver>, policy: RetryPolicy, seed: u64) -> Self {
        Self { resolver, policy, dice: Mutex::new(StdRng::seed_from_u64(seed)) }
    }

    /// The pause after try number `tries`, or `None` if that was the last.
    fn pause(&self, fault: &PortError, tries: u32) -> Option<Duration> {
        let fault = VendorFault::of(fault).filter(|fault| fault.is_safe_to_repeat())?;
        if tries >= self.policy.tries_max {
            return None;
        }
        let doubled = 2_u32.saturating_pow(tries - 1);
        let ceiling = self.policy.pause_first.saturating_mul(doubled).min(self.policy.pause_max);
        let jitter = ceiling.mul_f64(lock(&self.dice).random());
        Some(fault.retry_after.unwrap_or_default().saturating_add(jitter))
    }
}

#[async_trait]
impl Resolver for Retry {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        let started = Instant::now();
        let mut tries = 1;
        loop {
            let fault = match self.resolver.find(query).await {
                Ok(found) => return Ok(found),
                Err(fault) => fault,
            };
            let left = self.policy.budget.saturating_sub(started.elapsed());
            match self.pause(&fault, tries) {
                Some(pause) if pause < left => sleep(pause).await,
                _ => return Err(fault),
            }
            tries += 1;
        }
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("policy", &self.policy).finish_non_exhaustive()
    }
}
