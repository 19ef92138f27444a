//! Port wrappers with latency and injected faults.

use std::collections::BTreeMap;
use std::future::pending;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::LookupId;
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Window, Workspace};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::clock::random_ms;
use crate::event::Event;
use crate::fault::{Port, PortFault};
use crate::trace::Trace;

/// How long a spend takes if its store does not respond.
const SPEND_DELAY: Duration = Duration::from_secs(8);

/// The active faults of one node's ports, or of the vendor. They persist through crashes of the node.
#[derive(Debug)]
pub(crate) struct ActiveFaults {
    state: Mutex<State>,
    trace: Trace,
}

#[derive(Debug)]
struct State {
    rng: StdRng,
    /// The active fault of each port and the fraction of calls that it affects, from 0 to 1.
    current: BTreeMap<Port, (PortFault, f64)>,
    is_disk_stalled: bool,
}

impl ActiveFaults {
    pub(crate) fn new(seed: u64, trace: Trace) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        let state = State { rng, current: BTreeMap::new(), is_disk_stalled: false };
        Self { state: Mutex::new(state), trace }
    }

    pub(crate) fn start(&self, port: Port, fault: PortFault, rate: f64) {
        self.lock().current.insert(port, (fault, rate));
    }

    pub(crate) fn stop(&self, port: Port) {
        self.lock().current.remove(&port);
    }

    /// Starts or ends a stall of the node's disk.
    pub(crate) fn set_disk_stalled(&self, is_stalled: bool) {
        self.lock().is_disk_stalled = is_stalled;
    }

    pub(crate) fn is_disk_stalled(&self) -> bool {
        self.lock().is_disk_stalled
    }

    /// Draws the latency and the fault, if any, of the next call of `port`.
    pub(crate) fn draw(&self, port: Port, latency_ms: Range<u64>) -> (Duration, Option<PortFault>) {
        let State { rng, current, .. } = &mut *self.lock();
        let latency = random_ms(rng, latency_ms);
        let fault = current.get(&port).and_then(|&(fault, rate)| rng.random_bool(rate).then_some(fault));
        (latency, fault)
    }

    /// Makes a call, with the active fault if there is one.
    async fn call<T: Send + 'static>(
        &self,
        port: Port,
        call: impl Future<Output = Result<T, PortError>> + Send + 'static,
    ) -> Result<T, PortError> {
        let (latency, fault) = self.draw(port, 0..8);
        Self::inject(latency, fault, call).await
    }

    /// Makes a settlement call, with the active fault if there is one, and records the fault for `lookup`.
    async fn settle(
        &self,
        lookup: LookupId,
        settlement: Settlement,
        call: impl Future<Output = Result<(), PortError>> + Send + 'static,
    ) -> Result<(), PortError> {
        let (latency, fault) = self.draw(Port::Credits, 0..8);
        let fault = match (settlement, fault) {
            // A spend has no result while its outcome is unknown.
            (Settlement::Spend(_), Some(PortFault::Hang | PortFault::ResponseLost)) => {
                Some(PortFault::Delay(SPEND_DELAY))
            }
            (_, fault) => fault,
        };
        if let Some(fault) = fault {
            self.trace.record(Event::SettlementFault(lookup, fault));
        }
        Self::inject(latency, fault, call).await
    }

    async fn inject<T: Send + 'static>(
        latency: Duration,
        fault: Option<PortFault>,
        call: impl Future<Output = Result<T, PortError>> + Send + 'static,
    ) -> Result<T, PortError> {
        sleep(latency).await;
        match fault {
            None => call.await,
            Some(PortFault::Error) => Err(PortError::new("simulated: the port failed")),
            Some(PortFault::Hang) => pending().await,
            // Runs in its own task: a request in transit arrives even if the caller stops waiting.
            Some(PortFault::Delay(by)) => {
                let delayed = tokio::spawn(async move {
                    sleep(by).await;
                    call.await
                });
                delayed.await.unwrap_or_else(|_| Err(PortError::new("simulated: the node is shutting down")))
            }
            Some(PortFault::ResponseLost) => {
                let _ = call.await;
                Err(PortError::new("simulated: the response was lost"))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port of one node with injected faults.
pub(crate) struct FaultyPort<P: ?Sized> {
    pub(crate) port: Arc<P>,
    pub(crate) faults: Arc<ActiveFaults>,
}

#[async_trait]
impl Keys for FaultyPort<dyn Keys> {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        let (port, key) = (self.port.clone(), *key);
        self.faults.call(Port::Keys, async move { port.find(&key).await }).await
    }
}

#[async_trait]
impl Windows for FaultyPort<dyn Windows> {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let (port, window) = (self.port.clone(), window.clone());
        self.faults.call(Port::Windows, async move { port.count(&window).await }).await
    }
}

#[async_trait]
impl Credits for FaultyPort<dyn Credits> {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let (port, hold) = (self.port.clone(), hold.clone());
        self.faults.call(Port::Credits, async move { port.hold(&hold).await }).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let (port, lookup, hold) = (self.port.clone(), hold.lookup_id, hold.clone());
        let call = async move { port.settle(&hold, settlement).await };
        self.faults.settle(lookup, settlement, call).await
    }
}

#[async_trait]
impl Resolver for FaultyPort<dyn Resolver> {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let (port, query) = (self.port.clone(), query.clone());
        self.faults.call(Port::Resolver, async move { port.find(&query).await }).await
    }
}
