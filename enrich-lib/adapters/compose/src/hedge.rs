//! The slowest answers are not waited for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use futures_util::future::select;
use tokio::time::Instant;

use crate::lock::lock;
use crate::permits::Permits;
use crate::timeout::timeout;

/// A resolver that is asked a second time if it does not answer within a delay: the first answer wins, and the other
/// ask is dropped. A failure is no answer: the other ask is then waited for.
///
/// It makes more asks, so there is no constructor for a vendor that bills them.
pub struct Hedge {
    resolver: Arc<dyn Resolver>,
    delay: HedgeDelay,
    permits: Option<Arc<Permits>>,
    /// How long lookups took that were answered: the last [`Hedge::RECENT_MAX`].
    recent: Mutex<VecDeque<Duration>>,
}

/// When the second ask is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeDelay {
    /// So long after the first.
    Fixed(Duration),
    /// When the first has taken longer than 95 % of recent answers, so for about one lookup of twenty.
    P95 {
        /// The delay while there are fewer than [`Hedge::RECENT_MIN`] answers to judge by.
        at_first: Duration,
    },
}

impl Hedge {
    /// How many answers [`HedgeDelay::P95`] looks back on.
    pub const RECENT_MAX: usize = 100;
    /// How many answers [`HedgeDelay::P95`] needs.
    pub const RECENT_MIN: usize = 20;

    /// `resolver`, which must be one whose asks and answers cost nothing: a flat fee, a directory of one's own. A vendor
    /// that bills asks would bill two, and one that bills matches may find the person twice.
    pub fn where_asks_are_free(resolver: Arc<dyn Resolver>, delay: HedgeDelay) -> Self {
        Self { resolver, delay, permits: None, recent: Mutex::default() }
    }

    /// Makes a second ask only while one of these permits is free, and holds it as long as both asks are in progress.
    /// They are those of the [`Limit`](crate::Limit) around this resolver, whose own permit covers the first ask.
    #[must_use]
    pub fn within(self, permits: Arc<Permits>) -> Self {
        Self { permits: Some(permits), ..self }
    }

    fn delay(&self) -> Duration {
        match self.delay {
            HedgeDelay::Fixed(delay) => delay,
            HedgeDelay::P95 { at_first } => p95(&lock(&self.recent)).unwrap_or(at_first),
        }
    }

    /// The whole time counts, not that of the ask that won: else the delay would shrink with each slow answer that a
    /// second ask spared us, until everything is asked twice.
    fn remember(&self, took: Duration) {
        let mut recent = lock(&self.recent);
        if recent.len() == Self::RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(took);
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
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        let started = Instant::now();
        let mut first = self.resolver.find(query);
        let found = match timeout(self.delay(), &mut first).await {
            Some(found) => found,
            None => {
                let permit = self.permits.as_ref().map(|permits| permits.try_acquire());
                if let Some(None) = permit {
                    first.await
                } else {
                    first_success(first, self.resolver.find(query)).await
                }
            }
        };
        if found.is_ok() {
            self.remember(started.elapsed());
        }
        found
    }
}

/// The first match or "no match" of two asks; the first error if both fail.
async fn first_success<A>(one: A, other: A) -> A::Output
where
    A: Future<Output = Result<Option<ProfileUrl>, PortError>> + Unpin,
{
    let (sooner, later) = select(one, other).await.factor_first();
    match sooner {
        Ok(profile) => Ok(profile),
        Err(fault) => later.await.map_err(|_| fault),
    }
}

impl fmt::Debug for Hedge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hedge").field("delay", &self.delay).finish_non_exhaustive()
    }
}
