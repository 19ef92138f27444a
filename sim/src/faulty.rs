//! Port wrappers with latency and injected faults.

use std::collections::BTreeMap;
use std::future::pending;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{LookupId, ProfileUrl};
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Window, Workspace};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::event::Event;
use crate::plan::ms;
use crate::trace::Trace;
use crate::trouble::{Fault, Port};

/// The active faults of one node's ports, or of the vendor. They persist through crashes of the node.
#[derive(Debug)]
pub(crate) struct Faults {
    state: Mutex<State>,
    trace: Trace,
}

#[derive(Debug)]
struct State {
    dice: StdRng,
    /// The active fault of each port and the fraction of calls that it affects, from 0 to 1.
    current: BTreeMap<Port, (Fault, f64)>,
    is_stalled: bool,
}

impl Faults {
    pub(crate) fn new(seed: u64, trace: Trace) -> Self {
        let dice = StdRng::seed_from_u64(seed);
        let state = State { dice, current: BTreeMap::new(), is_stalled: false };
        Self { state: Mutex::new(state), trace }
    }

    pub(crate) fn begin(&self, port: Port, fault: Fault, rate: f64) {
        self.lock().current.insert(port, (fault, rate));
    }

    pub(crate) fn end(&self, port: Port) {
        self.lock().current.remove(&port);
    }

    /// Starts or ends a stall of the node's disk.
    pub(crate) fn stall(&self, is_stalled: bool) {
        self.lock().is_stalled = is_stalled;
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.lock().is_stalled
    }

    /// Draws the latency and the fault, if any, of the next call of `port`.
    pub(crate) fn draw(&self, port: Port, latency_ms: Range<u64>) -> (Duration, Option<Fault>) {
        let State { dice, current, .. } = &mut *self.lock();
        let latency = ms(dice, latency_ms);
        let fault = current.get(&port).and_then(|&(fault, rate)| dice.random_bool(rate).then_some(fault));
        (latency, fault)
    }

    /// Makes a call with the active fault, if any.
    async fn call<T: Send + 'static>(
        &self,
        port: Port,
        call: impl Future<Output = Result<T, PortError>> + Send + 'static,
    ) -> Result<T, PortError> {
        let (latency, fault) = self.draw(port, 0..8);
        Self::spoil(latency, fault, call).await
    }

    /// Makes a settlement call with the active fault, if any, and records the fault for `lookup`.
    async fn settle(
        &self,
        lookup: LookupId,
        call: impl Future<Output = Result<(), PortError>> + Send + 'static,
    ) -> Result<(), PortError> {
        let (latency, fault) = self.draw(Port::Credits, 0..8);
        if let Some(fault) = fault {
            self.trace.note(Event::Spoiled(lookup, fault));
        }
        Self::spoil(latency, fault, call).await
    }

    async fn spoil<T: Send + 'static>(
        latency: Duration,
        fault: Option<Fault>,
        call: impl Future<Output = Result<T, PortError>> + Send + 'static,
    ) -> Result<T, PortError> {
        sleep(latency).await;
        match fault {
            None => call.await,
            Some(Fault::Errors) => Err(PortError::new("simulated: the port failed")),
            Some(Fault::Hangs) => pending().await,
            // Runs in its own task: a request in transit arrives even if the caller stops waiting.
            Some(Fault::Late(by)) => {
                let late = tokio::spawn(async move {
                    sleep(by).await;
                    call.await
                });
                late.await.unwrap_or_else(|_| Err(PortError::new("simulated: the node is going down")))
            }
            Some(Fault::AnswerLost) => {
                let _ = call.await;
                Err(PortError::new("simulated: the answer was lost"))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port of one node with injected faults.
pub(crate) struct Faulty<P: ?Sized> {
    pub(crate) port: Arc<P>,
    pub(crate) faults: Arc<Faults>,
}

#[async_trait]
impl Keys for Faulty<dyn Keys> {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        let (port, key) = (self.port.clone(), *key);
        self.faults.call(Port::Keys, async move { port.find(&key).await }).await
    }
}

#[async_trait]
impl Windows for Faulty<dyn Windows> {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let (port, window) = (self.port.clone(), window.clone());
        self.faults.call(Port::Windows, async move { port.count(&window).await }).await
    }
}

#[async_trait]
impl Credits for Faulty<dyn Credits> {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let (port, hold) = (self.port.clone(), hold.clone());
        self.faults.call(Port::Credits, async move { port.hold(&hold).await }).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let (port, lookup, hold) = (self.port.clone(), hold.lookup_id, hold.clone());
        self.faults.settle(lookup, async move { port.settle(&hold, settlement).await }).await
    }
}

#[async_trait]
impl Resolver for Faulty<dyn Resolver> {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        let (port, query) = (self.port.clone(), query.clone());
        self.faults.call(Port::Resolver, async move { port.find(&query).await }).await
    }
}
