//! Request coalescing: concurrent lookups of the same person share one call.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use crate::error::SharedError;
use crate::hash::{EmailHash, EmailHasher};
use crate::lock::lock;

/// A resolver that makes one inner call for all concurrent lookups of the same person. Each lookup gets the same result or
/// the same error.
///
/// No lookup owns the call: it runs until it completes or the last waiting lookup is dropped. It has no deadline of its own.
/// Place a [`Deadline`](crate::Deadline) inside; otherwise a call that hangs stays alive for as long as new lookups join it.
pub struct Coalesce {
    resolver: Arc<dyn Resolver>,
    hasher: EmailHasher,
    in_flight: Arc<Mutex<InFlight>>,
}

type Answer = Result<Option<ProfileUrl>, SharedError>;
type Ask = BoxFuture<'static, Answer>;

#[derive(Default)]
struct InFlight {
    /// Each call with its number, which distinguishes it from a later call for the same person.
    asks: BTreeMap<EmailHash, (u64, WeakShared<Ask>)>,
    numbered: u64,
}

/// Removes a call from the calls in flight when the call completes or is dropped, even before its first poll.
struct Landing {
    in_flight: Arc<Mutex<InFlight>>,
    hash: EmailHash,
    number: u64,
}

impl Coalesce {
    /// Wraps `resolver` so that at most one call per person is in flight.
    pub fn new(resolver: Arc<dyn Resolver>, hasher: EmailHasher) -> Self {
        Self { resolver, hasher, in_flight: Arc::default() }
    }

    /// Returns the call in flight for this person, or starts a new one.
    fn ask(&self, query: &Query) -> Shared<Ask> {
        let hash = self.hasher.hash(&query.email);
        let mut in_flight = lock(&self.in_flight);
        if let Some(ask) = in_flight.asks.get(&hash).and_then(|(_, ask)| ask.upgrade()) {
            return ask;
        }
        in_flight.numbered += 1;
        let number = in_flight.numbered;
        let landing = Landing { in_flight: self.in_flight.clone(), hash, number };
        let (resolver, query) = (self.resolver.clone(), query.clone());
        let ask: Ask = Box::pin(async move {
            // An uncaught panic would leave the other lookups waiting forever.
            let answer = AssertUnwindSafe(resolver.find(&query)).catch_unwind().await;
            drop(landing);
            let answer = answer.unwrap_or_else(|_| Err(PortError::new("the resolver panicked")));
            answer.map_err(|error| SharedError(Arc::new(error)))
        });
        let ask = ask.shared();
        if let Some(weak) = ask.downgrade() {
            in_flight.asks.insert(hash, (number, weak));
        }
        ask
    }
}

#[async_trait]
impl Resolver for Coalesce {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        self.ask(query).await.map_err(PortError::new)
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut in_flight = lock(&self.in_flight);
        if in_flight.asks.get(&self.hash).is_some_and(|(number, _)| *number == self.number) {
            in_flight.asks.remove(&self.hash);
        }
    }
}

impl fmt::Debug for Coalesce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalesce")
            .field("in_flight", &lock(&self.in_flight).asks.len())
            .finish_non_exhaustive()
    }
}
