//! Ports that take a while, and fail as the nemesis says.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, Holding, Settlement};
use enrich_lib::email::Email;
use enrich_lib::key::KeyDigest;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::{Credits, Keys, Resolver, Windows};
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Window, Workspace};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::trouble::{Fault, Port};

/// What is wrong with the ports of one node, in this life and the next.
#[derive(Debug)]
pub(crate) struct Faults(Mutex<State>);

#[derive(Debug)]
struct State {
    dice: StdRng,
    /// How calls of each port fail, and how many of 1.
    current: BTreeMap<Port, (Fault, f64)>,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(State { dice: StdRng::seed_from_u64(seed), current: BTreeMap::new() }))
    }

    pub(crate) fn begin(&self, port: Port, fault: Fault, rate: f64) {
        self.lock().current.insert(port, (fault, rate));
    }

    pub(crate) fn end(&self, port: Port) {
        self.lock().current.remove(&port);
    }

    /// How long the next call of `port` takes, and what is wrong with it.
    fn draw(&self, port: Port) -> (Duration, Option<Fault>) {
        let State { dice, current } = &mut *self.lock();
        let latency_ms =
            if port == Port::Resolver { dice.random_range(5..1_500) } else { dice.random_range(0..8) };
        let fault = current.get(&port).and_then(|&(fault, rate)| dice.random_bool(rate).then_some(fault));
        (Duration::from_millis(latency_ms), fault)
    }

    /// Makes a call, with whatever is wrong at this moment.
    async fn call<T: Send + 'static>(
        &self,
        port: Port,
        call: impl Future<Output = Result<T, PortError>> + Send + 'static,
    ) -> Result<T, PortError> {
        let (latency, fault) = self.draw(port);
        sleep(latency).await;
        match fault {
            None => call.await,
            Some(Fault::Errors) => Err(PortError::new("simulated: the port failed")),
            Some(Fault::Hangs) => pending().await,
            // A task of its own, as a request that is on its way arrives, whoever waits for its answer.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port of one node, with what is wrong with it.
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
    async fn hold(&self, hold: &Hold) -> Result<Holding, PortError> {
        let (port, hold) = (self.port.clone(), hold.clone());
        self.faults.call(Port::Credits, async move { port.hold(&hold).await }).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let (port, hold) = (self.port.clone(), hold.clone());
        self.faults.call(Port::Credits, async move { port.settle(&hold, settlement).await }).await
    }
}

#[async_trait]
impl Resolver for Faulty<dyn Resolver> {
    async fn find(&self, email: &Email) -> Result<Option<ProfileUrl>, PortError> {
        let (port, email) = (self.port.clone(), email.clone());
        self.faults.call(Port::Resolver, async move { port.find(&email).await }).await
    }
}
