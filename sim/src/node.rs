//! A node: the real host on the simulated network.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use enrich_host::{Limits, Listener, Services};
use enrich_lib::drive::Service;
use enrich_lib::lookup::Policy;
use enrich_lib::ports::{Credits, Keys, Resolver};
use enrich_middleware::timeouts::{KeysWithTimeout, RetryingCredits, WindowsWithTimeout};
use enrich_middleware::{Deadline, HashedOptOuts, Suppress};
use turmoil::net::{TcpListener, TcpStream};

use crate::clock::Clock;
use crate::event::Event;
use crate::faulty::{Faults, Faulty};
use crate::guards::guarded;
use crate::stores::{Ports, Stores};
use crate::trace::Trace;
use crate::vendor::VendorClient;
use crate::witness::{Witness, Witnessed};

pub(crate) const PORT: u16 = 80;

/// A service node. This value persists through crashes; `serve` creates everything else anew in each life.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) clock: Clock,
    pub(crate) stores: Arc<Stores>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) witness: Arc<Witness>,
    pub(crate) trace: Trace,
    /// People who opted out of lookups.
    pub(crate) opt_outs: Arc<HashedOptOuts>,
    /// The seed of the resolver middleware, or `None` to run without it.
    pub(crate) guards: Option<u64>,
}

impl Node {
    /// Runs one life of the node.
    pub(crate) async fn serve(self) -> turmoil::Result {
        let forgets = self.stores.holds_end_with_their_node();
        self.trace.note(Event::Started { node: self.number, forgets });
        let ports = self.stores.clone().open(self.number, self.clock, self.faults.clone()).await?;
        let services = Services {
            arrivals: self.witness.clone(),
            limits: Limits::default(),
            date_header: false,
            ..Services::new(self.service(ports))
        };
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        enrich_host::run(Simulated(listener), services, pending()).await;
        Ok(())
    }

    /// Wraps the ports, from the innermost layer: the store or vendor, injected faults (unless the network is the fault),
    /// the host's timeouts and retries, the recording of calls.
    fn service(&self, ports: Ports) -> Service {
        let Ports { keys, windows, credits } =
            if self.stores.servers().is_empty() { self.spoiled(ports) } else { ports };
        let keys: Arc<dyn Keys> =
            Arc::new(KeysWithTimeout { keys, timeout: KeysWithTimeout::DEFAULT_TIMEOUT });
        let credits: Arc<dyn Credits> =
            Arc::new(RetryingCredits { credits, timeout: RetryingCredits::DEFAULT_TIMEOUT });
        let vendor: Arc<dyn Resolver> = Arc::new(VendorClient);
        let vendor: Arc<dyn Resolver> = Arc::new(Faulty { port: vendor, faults: self.faults.clone() });
        let opt_outs = self.opt_outs.clone();
        let resolver = match self.guards {
            Some(seed) => guarded(&vendor, opt_outs, seed),
            None => Arc::new(Deadline::new(Arc::new(Suppress::new(vendor, opt_outs)), Deadline::BUDGET)),
        };
        let witness = &self.witness;
        Service {
            policy: Arc::new(Policy::default()),
            keys: Arc::new(Witnessed { port: keys, witness: witness.clone() }),
            windows: Arc::new(Witnessed { port: windows, witness: witness.clone() }),
            credits: Arc::new(Witnessed { port: credits, witness: witness.clone() }),
            resolver: Arc::new(Witnessed { port: resolver, witness: witness.clone() }),
        }
    }

    /// Adds faults and timeouts to the ports of a store without a server. Rate-limit windows on a server have their own
    /// deadline.
    fn spoiled(&self, ports: Ports) -> Ports {
        let windows = Arc::new(Faulty { port: ports.windows, faults: self.faults.clone() });
        Ports {
            keys: Arc::new(Faulty { port: ports.keys, faults: self.faults.clone() }),
            windows: Arc::new(WindowsWithTimeout { windows, timeout: WindowsWithTimeout::DEFAULT_TIMEOUT }),
            credits: Arc::new(Faulty { port: ports.credits, faults: self.faults.clone() }),
        }
    }
}

struct Simulated(TcpListener);

impl Listener for Simulated {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }
}
