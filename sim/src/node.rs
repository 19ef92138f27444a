//! A node: the real host on the simulated network.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use enrich_host::{Limits, Listener, Services};
use enrich_lib::drive::Service;
use enrich_lib::lookup::Policy;
use enrich_lib::ports::{Credits, Keys, Resolver};
use enrich_middleware::timeouts::{CreditsWithTimeout, KeysWithTimeout, WindowsWithTimeout};
use enrich_middleware::{Deadline, HashedOptOuts, Suppress};
use turmoil::net::{TcpListener, TcpStream};

use crate::clock::NodeClock;
use crate::event::Event;
use crate::faulty_port::{ActiveFaults, FaultyPort};
use crate::middleware::with_middleware;
use crate::port_recorder::{PortRecorder, RecordedPort};
use crate::stores::{Ports, Stores};
use crate::topology::HTTP_PORT;
use crate::trace::Trace;
use crate::vendor::VendorClient;

/// A service node. This value survives crashes; `serve` creates everything else at each start.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) clock: NodeClock,
    pub(crate) stores: Arc<Stores>,
    pub(crate) faults: Arc<ActiveFaults>,
    pub(crate) recorder: Arc<PortRecorder>,
    pub(crate) trace: Trace,
    /// People who opted out of lookups.
    pub(crate) opt_outs: Arc<HashedOptOuts>,
    /// The seed of the resolver middleware, or `None` to run without it.
    pub(crate) middleware: Option<u64>,
}

impl Node {
    /// Runs the node until it crashes.
    pub(crate) async fn serve(self) -> turmoil::Result {
        let loses_holds = self.stores.loses_holds_in_crash();
        self.trace.record(Event::NodeStarted { node: self.number, loses_holds });
        let ports = self.stores.clone().open(self.number, self.clock.clone(), self.faults.clone()).await?;
        let services = Services {
            arrivals: self.recorder.clone(),
            limits: Limits::default(),
            date_header: false,
            ..Services::new(self.service(ports))
        };
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, HTTP_PORT)).await?;
        enrich_host::run(SimulatedListener(listener), services, pending()).await;
        Ok(())
    }

    /// Wraps the ports, from the innermost layer: the store or vendor, injected faults (unless the network is the fault),
    /// the host's timeouts and retries, the recording of calls.
    fn service(&self, ports: Ports) -> Service {
        let Ports { keys, windows, credits } =
            if self.stores.servers().is_empty() { self.with_faults(ports) } else { ports };
        let keys: Arc<dyn Keys> =
            Arc::new(KeysWithTimeout { keys, timeout: KeysWithTimeout::DEFAULT_TIMEOUT });
        let credits: Arc<dyn Credits> =
            Arc::new(CreditsWithTimeout { credits, timeout: CreditsWithTimeout::DEFAULT_TIMEOUT });
        let vendor: Arc<dyn Resolver> = Arc::new(VendorClient);
        let vendor: Arc<dyn Resolver> = Arc::new(FaultyPort { port: vendor, faults: self.faults.clone() });
        let opt_outs = self.opt_outs.clone();
        let resolver = match self.middleware {
            Some(seed) => with_middleware(&vendor, opt_outs, seed),
            None => Arc::new(Deadline::new(Arc::new(Suppress::new(vendor, opt_outs)), Deadline::BUDGET)),
        };
        let recorder = &self.recorder;
        Service {
            policy: Arc::new(Policy::default()),
            keys: Arc::new(RecordedPort { port: keys, recorder: recorder.clone() }),
            windows: Arc::new(RecordedPort { port: windows, recorder: recorder.clone() }),
            credits: Arc::new(RecordedPort { port: credits, recorder: recorder.clone() }),
            resolver: Arc::new(RecordedPort { port: resolver, recorder: recorder.clone() }),
        }
    }

    /// Adds faults and timeouts to the ports of a store without a server. Rate-limit windows on a server have their own
    /// deadline.
    fn with_faults(&self, ports: Ports) -> Ports {
        let windows = Arc::new(FaultyPort { port: ports.windows, faults: self.faults.clone() });
        Ports {
            keys: Arc::new(FaultyPort { port: ports.keys, faults: self.faults.clone() }),
            windows: Arc::new(WindowsWithTimeout { windows, timeout: WindowsWithTimeout::DEFAULT_TIMEOUT }),
            credits: Arc::new(FaultyPort { port: ports.credits, faults: self.faults.clone() }),
        }
    }
}

struct SimulatedListener(TcpListener);

impl Listener for SimulatedListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }
}
