//! Hedged requests, which reduce tail latency.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use futures_util::future::select;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::permits::Permits;
use crate::timeout::timeout;

/// A resolver that sends a second request if the first has not completed within a delay. The first successful
/// result wins and the other request is dropped. After a failure, the other request is awaited.
///
/// Hedging sends additional requests. Use it only for resolvers whose requests and matches are free, for
/// example with a flat fee or a local directory. A vendor that bills requests would bill both, and a vendor
/// that bills matches may bill the same match twice.
pub struct Hedge {
    resolver: Arc<dyn Resolver>,
    delay: HedgeDelay,
    permits: Option<Arc<Permits>>,
    /// Durations of the last [`Hedge::RECENT_MAX`] successful lookups.
    recent: Mutex<VecDeque<Duration>>,
}

/// When to send the second request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeDelay {
    /// After this fixed delay.
    Fixed(Duration),
    /// When the first request exceeds the 95th percentile of recent lookups, so for about one lookup in
    /// twenty.
    P95 {
        /// The delay until [`Hedge::RECENT_MIN`] lookups have been measured.
        initial: Duration,
    },
}

impl Hedge {
    /// Number of lookups from which [`HedgeDelay::P95`] computes its percentile.
    pub const RECENT_MAX: usize = 100;
    /// Number of lookups that [`HedgeDelay::P95`] needs before it computes a percentile.
    pub const RECENT_MIN: usize = 20;

    /// Wraps `resolver`, whose requests must be free.
    pub fn new(resolver: Arc<dyn Resolver>, delay: HedgeDelay) -> Self {
        Self { resolver, delay, permits: None, recent: Mutex::default() }
    }

    /// Sends a second request only if one of these permits is free, and holds the permit while both requests
    /// are in progress. Pass the permits of the [`ConcurrencyLimit`](crate::ConcurrencyLimit) around this
    /// resolver, whose own permit covers the first request.
    #[must_use]
    pub fn with_permits(self, permits: Arc<Permits>) -> Self {
        Self { permits: Some(permits), ..self }
    }

    fn delay(&self) -> Duration {
        match self.delay {
            HedgeDelay::Fixed(delay) => delay,
            HedgeDelay::P95 { initial } => p95(&self.recent.lock()).unwrap_or(initial),
        }
    }

    /// Records the duration of the whole lookup, not of the request that won. Otherwise each slow request
    /// that hedging avoided would shrink the delay, until every request is sent twice.
    fn record(&self, duration: Duration) {
        let mut recent = self.recent.lock();
        if recent.len() == Self::RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(duration);
    }
}

fn p95(recent: &VecDeque<Duration>) -> Option<Duration> {
    if recent.len() < Hedge::RECENT_MIN {
        return None;
    }
    let mut sorted: Vec<_> = recent.iter().copied().collect();
    sorted.sort_unstable();
    sorted.get((sorted.len() * 95).div_ceil(100) - 1).copied()
}

#[async_trait]
impl Resolver for Hedge {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let started = Instant::now();
        let mut first = self.resolver.find(query);
        let result = match timeout(self.delay(), &mut first).await {
            Some(result) => result,
            None => {
                let permit = self.permits.as_ref().map(|permits| permits.try_acquire());
                if let Some(None) = permit {
                    first.await
                } else {
                    first_success(first, self.resolver.find(query)).await
                }
            }
        };
        if result.is_ok() {
            self.record(started.elapsed());
        }
        result
    }
}

/// Returns the first match or "no match" of two requests, or the first error if both fail.
async fn first_success<A>(one: A, other: A) -> A::Output
where
    A: Future<Output = Result<Answer, PortError>> + Unpin,
{
    let (result, remaining) = select(one, other).await.factor_first();
    match result {
        Ok(answer) => Ok(answer),
        Err(error) => remaining.await.map_err(|_| error),
    }
}

impl fmt::Debug for Hedge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hedge").field("delay", &self.delay).finish_non_exhaustive()
    }
}
