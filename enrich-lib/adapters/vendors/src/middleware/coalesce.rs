//! Request coalescing: concurrent lookups of one address share one call.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::model::WorkspaceId;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_store::{EmailHash, EmailHasher};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

use super::deadline::find_without_panic;
use super::waterfall::failed_in_queue;

/// A resolver that makes one inner call for all concurrent lookups of one address, in upper or lower case. They
/// get the same result or the same error, with one exception. The call waits in the queues of the workspace that
/// started it. If a queue is full or the wait too long, each other workspace makes one more call, which waits in
/// its own queues.
///
/// No lookup owns the call: it runs until it completes or the last waiting lookup is dropped. It has no
/// deadline of its own. Place a [`Deadline`](super::Deadline) inside; otherwise a call that hangs stays alive
/// for as long as new lookups join it.
#[derive(derive_more::Debug)]
#[debug("Coalesce {{ in_flight: {}, .. }}", in_flight.lock().calls.len())]
pub struct Coalesce {
    resolver: Arc<dyn Resolver>,
    hasher: EmailHasher,
    in_flight: Arc<Mutex<InFlight>>,
}

type Call = BoxFuture<'static, Result<Answer, PortError>>;

/// The address, and for a second call, the workspace.
type Key = (EmailHash, Option<WorkspaceId>);

#[derive(Default)]
struct InFlight {
    /// Each call with its workspace and its id, which distinguishes it from a later call for the same address.
    calls: BTreeMap<Key, (u64, WorkspaceId, WeakShared<Call>)>,
    last_id: u64,
}

/// Removes a call from the calls in flight when the call completes or is dropped, even before its first poll.
struct InFlightGuard {
    in_flight: Arc<Mutex<InFlight>>,
    key: Key,
    id: u64,
}

impl Coalesce {
    /// Wraps `resolver` so that at most one call per address is in flight, and a second one of each workspace.
    pub fn new(resolver: Arc<dyn Resolver>, hasher: EmailHasher) -> Self {
        Self { resolver, hasher, in_flight: Arc::default() }
    }

    /// Returns the call in flight for this address, or starts a new one. Also returns whether it is a call of
    /// another workspace.
    fn join(&self, query: &Query, second_of: Option<WorkspaceId>) -> (Shared<Call>, bool) {
        let key = (self.hasher.address_hash(&query.email), second_of);
        let mut in_flight = self.in_flight.lock();
        if let Some((_, workspace, call)) = in_flight.calls.get(&key)
            && let Some(call) = call.upgrade()
        {
            return (call, *workspace != query.workspace);
        }
        in_flight.last_id += 1;
        let id = in_flight.last_id;
        let guard = InFlightGuard { in_flight: self.in_flight.clone(), key: key.clone(), id };
        let (resolver, query, workspace) = (self.resolver.clone(), query.clone(), query.workspace.clone());
        let call: Call = Box::pin(async move {
            // An uncaught panic would leave the other lookups waiting forever.
            let result = find_without_panic(&*resolver, &query).await;
            drop(guard);
            result
        });
        let call = call.shared();
        if let Some(weak) = call.downgrade() {
            in_flight.calls.insert(key, (id, workspace, weak));
        }
        (call, false)
    }
}

#[async_trait]
impl Resolver for Coalesce {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let (call, is_of_other) = self.join(query, None);
        match call.await {
            Err(error) if is_of_other && failed_in_queue(&error) => {
                self.join(query, Some(query.workspace.clone())).0.await
            }
            found => found,
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut in_flight = self.in_flight.lock();
        if in_flight.calls.get(&self.key).is_some_and(|(id, ..)| *id == self.id) {
            in_flight.calls.remove(&self.key);
        }
    }
}
