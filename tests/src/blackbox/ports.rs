//! Port wrappers that record calls and inject faults.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::drive::Service;
use enrich_lib::key::KeyDigest;
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Window, Workspace};
use tokio::sync::watch;

/// A port call of a lookup, in the order in which a lookup makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortCall {
    FindKey,
    Count,
    Hold,
    FindPerson,
    Settle,
}

/// How a port responds to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behavior {
    #[default]
    Works,
    Fails,
    /// Does not return until the behavior changes.
    Hangs,
}

/// The error message of a failing port. It must not appear in any reply.
pub const FAULT_MESSAGE: &str = "vault-7 burned down";

/// A wrapper around all ports of the server. Forwards calls unless a test sets another [`Behavior`].
pub struct Ports {
    inner: Service,
    behaviors: watch::Sender<BTreeMap<PortCall, Behavior>>,
    calls: Mutex<Vec<PortCall>>,
}

impl Ports {
    pub(super) fn new(inner: Service) -> Self {
        Self { inner, behaviors: watch::Sender::default(), calls: Mutex::default() }
    }

    pub fn set(&self, call: PortCall, behavior: Behavior) {
        self.behaviors.send_modify(|behaviors| {
            behaviors.insert(call, behavior);
        });
    }

    pub fn all_work(&self) {
        self.behaviors.send_modify(BTreeMap::clear);
    }

    /// Returns the calls since the previous `take_calls`, in order.
    pub fn take_calls(&self) -> Vec<PortCall> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// Returns the number of `call` calls since the last [`Ports::take_calls`].
    pub fn count(&self, call: PortCall) -> usize {
        self.calls.lock().unwrap().iter().filter(|other| **other == call).count()
    }

    async fn pass<T>(
        &self,
        call: PortCall,
        answer: impl Future<Output = Result<T, PortError>>,
    ) -> Result<T, PortError> {
        self.calls.lock().unwrap().push(call);
        let mut behaviors = self.behaviors.subscribe();
        let behavior_of = |behaviors: &BTreeMap<_, _>| behaviors.get(&call).copied().unwrap_or_default();
        let behavior = behaviors
            .wait_for(|behaviors| behavior_of(behaviors) != Behavior::Hangs)
            .await
            .map(|behaviors| behavior_of(&behaviors));
        match behavior.unwrap() {
            Behavior::Works | Behavior::Hangs => answer.await,
            Behavior::Fails => Err(PortError::new(FAULT_MESSAGE)),
        }
    }
}

#[async_trait]
impl Keys for Ports {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        self.pass(PortCall::FindKey, self.inner.keys.find(key)).await
    }
}

#[async_trait]
impl Windows for Ports {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        self.pass(PortCall::Count, self.inner.windows.count(window)).await
    }
}

#[async_trait]
impl Credits for Ports {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.pass(PortCall::Hold, self.inner.credits.hold(hold)).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        self.pass(PortCall::Settle, self.inner.credits.settle(hold, settlement)).await
    }
}

#[async_trait]
impl Resolver for Ports {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        self.pass(PortCall::FindPerson, self.inner.resolver.find(query)).await
    }
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports")
            .field("behaviors", &self.behaviors)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}
