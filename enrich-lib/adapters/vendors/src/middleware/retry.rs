//! Retries of transient failures.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorError};
use enrich_store::Backoff;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};

/// A resolver that retries errors that [are retryable](VendorError::is_retryable). Other errors and the last
/// error are returned unchanged.
///
/// Delays use exponential backoff with full jitter: each delay is random, between zero and a ceiling that
/// doubles with each try. A vendor's `Retry-After` is added to the delay. A delay that does not fit into the
/// remaining budget is not started; the error is returned instead.
#[derive(derive_more::Debug)]
#[debug("Retry {{ policy: {policy:?}, .. }}")]
pub struct Retry {
    resolver: Arc<dyn Resolver>,
    policy: RetryPolicy,
    rng: Mutex<StdRng>,
}

/// How often a lookup is tried, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of tries of one lookup, including the first.
    pub tries_max: u32,
    /// Ceiling of the first delay.
    pub delay_first: Duration,
    /// Ceiling of every delay, not including a `Retry-After`.
    pub delay_max: Duration,
    /// Maximum time from the start of the first try to the start of a later one. Use the budget of the
    /// [`Deadline`](super::Deadline) around this resolver, which also ends a try that hangs.
    pub budget: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries_max: 3,
            delay_first: Duration::from_millis(100),
            delay_max: Duration::from_secs(2),
            budget: Duration::from_secs(3),
        }
    }
}

impl Retry {
    /// Wraps `resolver` with retries. `seed` seeds the jitter.
    pub fn new(resolver: Arc<dyn Resolver>, policy: RetryPolicy, seed: u64) -> Self {
        Self { resolver, policy, rng: Mutex::new(StdRng::seed_from_u64(seed)) }
    }

    /// Returns the delay after try number `tries`, or `None` if there is no further try.
    fn delay(&self, error: &PortError, tries: u32, backoff: &mut Backoff) -> Option<Duration> {
        let error = VendorError::find_in(error).filter(|error| error.is_retryable())?;
        if tries >= self.policy.tries_max {
            return None;
        }
        let pause = backoff.next_pause_with_jitter(self.rng.lock().random());
        Some(error.retry_after.unwrap_or_default().saturating_add(pause))
    }
}

#[async_trait]
impl Resolver for Retry {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let started = Instant::now();
        let mut tries = 1;
        let mut backoff = Backoff::new(self.policy.delay_first, self.policy.delay_max);
        loop {
            let error = match self.resolver.find(query).await {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            let left = self.policy.budget.saturating_sub(started.elapsed());
            match self.delay(&error, tries, &mut backoff) {
                Some(delay) if delay < left => sleep(delay).await,
                _ => return Err(error),
            }
            tries += 1;
        }
    }
}
