//! A wrapper around all ports that records their calls.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::drive::Service;
use enrich_lib::key::KeyDigest;
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Window, Workspace};

/// A port call of a lookup, in the order in which a lookup makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortCall {
    FindKey,
    Count,
    Hold,
    FindPerson,
    Settle,
}

/// A wrapper around all ports of the server that records their calls.
#[derive(Debug)]
pub struct Ports {
    inner: Service,
    calls: Mutex<Vec<PortCall>>,
}

impl Ports {
    pub(super) fn new(inner: Service) -> Self {
        Self { inner, calls: Mutex::default() }
    }

    /// Returns a service that calls the ports through `self`.
    pub(super) fn service(self: &Arc<Self>) -> Service {
        let policy = self.inner.policy.clone();
        Service {
            policy,
            keys: self.clone(),
            windows: self.clone(),
            credits: self.clone(),
            resolver: self.clone(),
        }
    }

    /// Returns the calls since the previous `take_calls`, in order.
    pub fn take_calls(&self) -> Vec<PortCall> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn record(&self, call: PortCall) -> &Service {
        self.calls.lock().unwrap().push(call);
        &self.inner
    }
}

#[async_trait]
impl Keys for Ports {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        self.record(PortCall::FindKey).keys.find(key).await
    }
}

#[async_trait]
impl Windows for Ports {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        self.record(PortCall::Count).windows.count(window).await
    }
}

#[async_trait]
impl Credits for Ports {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        self.record(PortCall::Hold).credits.hold(hold).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        self.record(PortCall::Settle).credits.settle(hold, settlement).await
    }
}

#[async_trait]
impl Resolver for Ports {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        self.record(PortCall::FindPerson).resolver.find(query).await
    }
}
