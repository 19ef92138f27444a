//! Lookups of the same person at the same time are one ask.

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

use crate::fault::SharedFault;
use crate::hash::{EmailHash, EmailHasher};
use crate::lock::lock;

/// A resolver that is asked once for all lookups of one person that are under way together: each gets that answer, or
/// that failure.
///
/// No lookup owns the ask: it goes on until it ends or the last of them is dropped. It has no deadline of its own, so
/// put one inside: else those who join a lookup that hangs keep it alive.
pub struct Coalesce {
    resolver: Arc<dyn Resolver>,
    hasher: EmailHasher,
    in_flight: Arc<Mutex<InFlight>>,
}

type Answer = Result<Option<ProfileUrl>, SharedFault>;
type Ask = BoxFuture<'static, Answer>;

#[derive(Default)]
struct InFlight {
    /// Each with its number, which tells it from a later one of the same person.
    asks: BTreeMap<EmailHash, (u64, WeakShared<Ask>)>,
    numbered: u64,
}

/// Takes an ask out of those in flight when the ask ends, or when it is dropped, begun or not.
struct Landing {
    in_flight: Arc<Mutex<InFlight>>,
    hash: EmailHash,
    number: u64,
}

impl Coalesce {
    /// `resolver`, asked once at a time for one person.
    pub fn new(resolver: Arc<dyn Resolver>, hasher: EmailHasher) -> Self {
        Self { resolver, hasher, in_flight: Arc::default() }
    }

    /// The ask in flight for this person, or a new one.
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
            // A panic would leave the others waiting for ever.
            let answer = AssertUnwindSafe(resolver.find(&query)).catch_unwind().await;
            drop(landing);
            let answer = answer.unwrap_or_else(|_| Err(PortError::new("the resolver panicked")));
            answer.map_err(|fault| SharedFault(Arc::new(fault)))
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
