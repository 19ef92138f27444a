//! Answers for people who opted out, which take as long as those of a vendor for unknown people, and are refused
//! like them. Otherwise, the time or the status of a reply would reveal the opt-out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorErrorKind};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};

use super::breaker::CircuitBreaker;

/// The number of recent durations.
const RECENT_MAX: usize = 64;

/// The duration before the vendor has answered for the first time.
const FIRST: Duration = Duration::from_millis(100);

/// The recent durations of a vendor's answers without a match.
pub(crate) struct Durations(Mutex<State>);

struct State {
    recent: VecDeque<Duration>,
    rng: StdRng,
}

impl Durations {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { recent: VecDeque::new(), rng: StdRng::seed_from_u64(seed) })))
    }

    fn record(&self, duration: Duration) {
        let recent = &mut self.0.lock().recent;
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(duration);
    }

    /// Returns one of the recent durations at random, each with the same probability.
    fn draw(&self) -> Duration {
        let State { recent, rng } = &mut *self.0.lock();
        if recent.is_empty() { FIRST } else { recent[rng.random_range(..recent.len())] }
    }
}

/// A resolver that records the durations of its answers without a match.
pub(crate) struct Timed {
    resolver: Arc<dyn Resolver>,
    durations: Arc<Durations>,
}

impl Timed {
    pub(crate) fn new(resolver: Arc<dyn Resolver>, durations: Arc<Durations>) -> Self {
        Self { resolver, durations }
    }
}

#[async_trait]
impl Resolver for Timed {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let started = Instant::now();
        let found = self.resolver.find(query).await;
        if found.as_ref().is_ok_and(|answer| answer.profile.is_none()) {
            self.durations.record(started.elapsed());
        }
        found
    }
}

/// A resolver that never finds a person, after one of the recent durations of a vendor. Fails while the vendor's
/// breaker rejects lookups.
pub(crate) struct Decoy {
    pub(crate) breaker: Arc<CircuitBreaker>,
    pub(crate) durations: Arc<Durations>,
}

#[async_trait]
impl Resolver for Decoy {
    async fn find(&self, _: &Query) -> Result<Answer, PortError> {
        if !self.breaker.admits() {
            return Err(VendorErrorKind::CircuitOpen.into());
        }
        sleep(self.durations.draw()).await;
        Ok(Answer::default())
    }
}

/// A resolver that takes as long as another one, and never finds a person.
pub(crate) struct WithoutMatch(pub(crate) Arc<dyn Resolver>);

#[async_trait]
impl Resolver for WithoutMatch {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        self.0.find(query).await.map(|_| Answer::default())
    }
}
