//! A node: the program's own stores, ticks and shutdown, and what serves its connections, on a simulated
//! machine and network.

use std::collections::BTreeMap;
use std::future::pending;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use enrich_lib::credit::Price;
use enrich_node::Node;
use enrich_node::sources::Sources;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::sleep;

use crate::clock::NodeClock;
use crate::event::Event;
use crate::gateway::{Ports, Serve};
use crate::listener::Listener;
use crate::machine::{Signals, SimulatedMachine};
use crate::port_recorder::PortRecorder;
use crate::request::HttpVersion;
use crate::stores::Stores;
use crate::trace::Trace;
use crate::vendor::sources;
use crate::workspaces::{KeyTexts, workspace_ids};

/// How long a node waits between two attempts to start while its server does not accept it.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which the readiness and the balances of a node are recorded.
pub(crate) const OBSERVATION_INTERVAL: Duration = Duration::from_millis(250);

/// The machine of a node, and the signals to its process. This value survives crashes; `serve` creates
/// everything else at each start.
#[derive(Clone)]
pub(crate) struct NodeMachine {
    pub(crate) number: usize,
    pub(crate) clock: NodeClock,
    pub(crate) stores: Arc<Stores>,
    pub(crate) recorder: Arc<PortRecorder>,
    pub(crate) trace: Trace,
    pub(crate) has_middleware: bool,
    pub(crate) vendor_http: HttpVersion,
    pub(crate) price: Price,
    pub(crate) seed: u64,
    pub(crate) signals: Arc<Signals>,
    pub(crate) gateway: Rc<dyn Serve>,
    pub(crate) keys: KeyTexts,
}

impl NodeMachine {
    /// Runs the node until it crashes or stops.
    pub(crate) async fn serve(self) -> turmoil::Result {
        self.signals.forget().await;
        self.trace.record(Event::NodeStarted {
            node: self.number,
            is_alone: self.stores.is_alone(),
            is_program: self.gateway.is_program(),
            has_middleware: self.has_middleware,
            price: self.price,
        });
        let node = match self.open().await {
            Ok(node) => Arc::new(node),
            Err(error) => return self.fail(error.to_string()).await,
        };
        let listener = Listener::bind().await?;
        if self.stores.is_alone() {
            // The fake PostgreSQL does not execute the SQL of housekeeping.
            node.keep_house(None);
        }
        let Self { number, price, recorder, signals, trace, keys, .. } = self.clone();
        let ports = Ports { number, node: node.clone(), price, recorder, signals, trace, keys };
        let (gateway, mut served) = (self.gateway.serve(listener, ports), Ok(()));
        let serving = async {
            tokio::select! { biased;
                result = gateway => served = result,
                () = self.reload(&node) => {}
                () = self.observe(&node) => {}
            }
            self.trace.record(Event::LastTick(self.number, node.ticks.age().max(node.statistics.age())));
        };
        let ended = node.run(serving).await;
        let sizes = node.accounts.statistics().commits.sizes.buckets;
        // The first of two buckets ends where the second one begins.
        let largest = sizes.windows(2).rfind(|pair| pair[1].1 > 0).and_then(|pair| pair[0].0);
        if let Some(spends) = largest {
            self.trace.record(Event::LargeCommit(self.number, spends));
        }
        served.map_err(|error| format!("the gateway failed: {error}"))?;
        if let Err(error) = ended {
            return self.fail(error.to_string()).await;
        }
        self.trace.record(Event::NodeStopped(self.number));
        Ok(())
    }

    /// Records the error with which the process ends. The nemesis then drops its tasks, and starts it again.
    async fn fail(&self, error: String) -> turmoil::Result {
        self.trace.record(Event::NodeFailed(self.number, error));
        pending().await
    }

    /// Opens the node. Retries until its server accepts it.
    async fn open(&self) -> turmoil::Result<Node> {
        let (sources, is_other) = self.sources()?;
        loop {
            let stores = self.stores.of_node()?;
            let machine = SimulatedMachine {
                clock: self.clock.clone(),
                disk: self.stores.disk().cloned(),
                rng: Mutex::new(StdRng::seed_from_u64(self.seed)),
            };
            match Node::open(Arc::new(machine), stores, &sources, Arc::default()).await {
                Err(_) if !self.stores.is_alone() => sleep(RETRY_INTERVAL).await,
                opened => {
                    self.trace.record(Event::SourcesLoaded(self.number, is_other));
                    return Ok(opened?);
                }
            }
        }
    }

    /// Replaces the sources at each signal. Never returns.
    async fn reload(&self, node: &Node) {
        loop {
            self.signals.reload.notified().await;
            if let Ok((sources, is_other)) = self.sources() {
                node.replace_sources(&sources);
                self.trace.record(Event::SourcesLoaded(self.number, is_other));
            }
        }
    }

    /// Returns the sources in the settings, and whether they are the other ones.
    fn sources(&self) -> turmoil::Result<(Sources, bool)> {
        let is_other = self.signals.has_other_sources.load(Ordering::Relaxed);
        Ok((sources(self.has_middleware, self.vendor_http, is_other)?, is_other))
    }

    /// Records when the node becomes able, or unable, to serve, and the balances of a ledger in its memory when they
    /// have changed. Never returns.
    async fn observe(&self, node: &Node) {
        let (mut was_ready, mut recorded) = (true, BTreeMap::new());
        let workspaces = if self.stores.is_alone() { &workspace_ids()[..] } else { &[] };
        loop {
            let is_ready = node.check_accounts().is_ok() && node.people.check().is_ok();
            if is_ready != mem::replace(&mut was_ready, is_ready) {
                self.trace.record(Event::Ready(self.number, is_ready));
            }
            for workspace in workspaces {
                if let Ok(balance) = node.accounts.balance(workspace).await
                    && recorded.insert(workspace.clone(), balance) != Some(balance)
                {
                    self.trace.record(Event::Balance(workspace.clone(), balance));
                }
            }
            sleep(OBSERVATION_INTERVAL).await;
        }
    }
}
