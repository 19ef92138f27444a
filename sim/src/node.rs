//! A node: the real host over the simulated network.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use enrich_compose::{Deadline, HashedOptOuts, Suppress};
use enrich_host::patience::{PersistentCredits, TimelyKeys, TimelyWindows};
use enrich_host::{Limits, Listener, Services};
use enrich_lib::drive::Service;
use enrich_lib::lookup::Policy;
use enrich_lib::ports::{Credits, Keys, Resolver};
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

/// One service node. It outlives its crashes; what it serves with is made anew in each of its lives.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) clock: Clock,
    pub(crate) stores: Arc<Stores>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) witness: Arc<Witness>,
    pub(crate) trace: Trace,
    /// Who is not looked for.
    pub(crate) opt_outs: Arc<HashedOptOuts>,
    /// The seed of its guards, if it has any.
    pub(crate) guards: Option<u64>,
}

impl Node {
    /// One life.
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

    /// From the inside out: the store or the vendor · what is wrong with it, if that is not the network · the host's
    /// patience with it · the witness.
    fn service(&self, ports: Ports) -> Service {
        let Ports { keys, windows, credits } =
            if self.stores.servers().is_empty() { self.spoiled(ports) } else { ports };
        let keys: Arc<dyn Keys> = Arc::new(TimelyKeys { keys, deadline: TimelyKeys::DEADLINE });
        let credits: Arc<dyn Credits> =
            Arc::new(PersistentCredits { credits, deadline: PersistentCredits::DEADLINE });
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

    /// The ports of a store that is not on a server, with what is wrong with them. A server's windows have a deadline of
    /// their own.
    fn spoiled(&self, ports: Ports) -> Ports {
        let windows = Arc::new(Faulty { port: ports.windows, faults: self.faults.clone() });
        Ports {
            keys: Arc::new(Faulty { port: ports.keys, faults: self.faults.clone() }),
            windows: Arc::new(TimelyWindows { windows, deadline: TimelyWindows::DEADLINE }),
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
