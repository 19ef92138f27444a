//! Records the port calls of each lookup and their results, and changes none of them.
//!
//! Calls of `Keys` and `Windows` do not identify their lookup: it is the last one that its task began or
//! continued.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::drive::Service;
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{Arrival, LookupId, Timestamp};
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Window, Workspace};
use enrich_tower::Arrivals;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task;

use crate::clock::{NodeClock, correct_time};
use crate::event::{Event, PortCall, PortResult};
use crate::keys::KeyOf;
use crate::trace::Trace;

/// Tracks the lookups of one node.
#[derive(Debug)]
pub(crate) struct PortRecorder {
    node: usize,
    clock: NodeClock,
    trace: Trace,
    rng: Mutex<StdRng>,
    /// The lookup that each task runs.
    current: Mutex<HashMap<Option<task::Id>, LookupId>>,
    /// All keys of workspaces.
    keys: [(KeyDigest, KeyOf); KeyOf::ALL.len()],
}

impl PortRecorder {
    pub(crate) fn new(
        node: usize,
        clock: NodeClock,
        seed: u64,
        trace: Trace,
        keys: [(KeyDigest, KeyOf); KeyOf::ALL.len()],
    ) -> Self {
        let rng = Mutex::new(StdRng::seed_from_u64(seed));
        Self { node, clock, trace, rng, current: Mutex::default(), keys }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the service with ports that record their calls.
    pub(crate) fn record_ports(self: &Arc<Self>, mut service: Service) -> Service {
        service.keys = Arc::new(RecordedPort { port: service.keys, recorder: self.clone() });
        service.windows = Arc::new(RecordedPort { port: service.windows, recorder: self.clone() });
        service.credits = Arc::new(RecordedPort { port: service.credits, recorder: self.clone() });
        service.resolver = Arc::new(RecordedPort { port: service.resolver, recorder: self.clone() });
        service
    }

    async fn record<T>(
        &self,
        lookup: LookupId,
        call: PortCall,
        future: impl Future<Output = Result<T, PortError>>,
        result: impl FnOnce(&T) -> PortResult,
    ) -> Result<T, PortError> {
        self.trace.record(Event::PortCalled(lookup, call));
        let returned = future.await;
        self.trace.record(Event::PortReturned(lookup, returned.as_ref().map_or(PortResult::Failed, result)));
        self.set_current(lookup);
        returned
    }

    /// Returns the lookup that the current task runs.
    fn current(&self) -> LookupId {
        self.current.lock().get(&task::try_id()).copied().unwrap_or(LookupId::from_bytes([0; 16]))
    }

    fn set_current(&self, lookup: LookupId) {
        self.current.lock().insert(task::try_id(), lookup);
    }
}

/// Uses the node's clock, and randomness from the seed.
impl Arrivals for PortRecorder {
    fn arrive(&self) -> Arrival {
        let random = self.rng.lock().random();
        let arrival = Arrival::new(self.clock.now(), random);
        self.trace.record(Event::LookupStarted(self.node, arrival.id));
        self.set_current(arrival.id);
        arrival
    }
}

/// A port of one node that records its calls.
struct RecordedPort<P: ?Sized> {
    port: Arc<P>,
    recorder: Arc<PortRecorder>,
}

#[async_trait]
impl Keys for RecordedPort<dyn Keys> {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        let of = self.recorder.keys.iter().find(|(digest, _)| digest == key).map(|(_, of)| *of);
        let result = |found: &Option<Workspace>| PortResult::KeyFound { is_valid: found.is_some(), key: of };
        self.recorder.record(self.recorder.current(), PortCall::FindKey, self.port.find(key), result).await
    }
}

#[async_trait]
impl Windows for RecordedPort<dyn Windows> {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let (Ok(status) | Err(status)) = window.admit(0, self.recorder.clock.now());
        let result = |&count: &u64| PortResult::Counted {
            count,
            lead_ms: window.opens_at().unix_ms().saturating_sub(correct_time().unix_ms()),
            closes_at: window.closes_at(),
            limit: status.limit,
            reset_seconds: status.reset_seconds,
            is_test: window.is_test(),
        };
        self.recorder
            .record(self.recorder.current(), PortCall::CountRequest, self.port.count(window), result)
            .await
    }
}

#[async_trait]
impl Credits for RecordedPort<dyn Credits> {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.recorder.trace.record(Event::HoldRequested(
            hold.lookup_id,
            hold.workspace.clone(),
            hold.credits,
            hold.receipt,
        ));
        self.recorder
            .record(hold.lookup_id, PortCall::Hold, self.port.hold(hold), |&held| PortResult::Hold(held))
            .await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        let call = PortCall::Settle(settlement);
        self.recorder
            .record(hold.lookup_id, call, self.port.settle(hold, settlement), |&payer| {
                PortResult::Settled(payer)
            })
            .await
    }

    fn keeps_receipts(&self) -> bool {
        self.port.keeps_receipts()
    }
}

#[async_trait]
impl Resolver for RecordedPort<dyn Resolver> {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        self.recorder.trace.record(Event::Resolving(query.lookup_id, query.email.as_str().to_owned()));
        let result = |answer: &Answer| PortResult::ProfileFound(answer.profile.is_some());
        self.recorder.record(query.lookup_id, PortCall::Resolve, self.port.find(query), result).await
    }
}
