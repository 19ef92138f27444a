//! The server of a node's connections: the program's, or a gateway's own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use enrich_host::{Limits, Services};
use enrich_lib::credit::Price;
use enrich_lib::drive::Service;
use enrich_lib::lookup::Policy;
use enrich_lib::model::{LookupId, Timestamp};
use enrich_lib::observe::{Ending, LookupEvent, Observer};
use enrich_node::Node;
use enrich_tower::{Arrivals, EnrichLayer};
use turmoil::net::TcpStream;

use crate::event::Event;
use crate::listener::Listener;
use crate::machine::Signals;
use crate::port_recorder::PortRecorder;
use crate::topology::{DATABASE_PORT, Server};
use crate::trace::Trace;
use crate::workspaces::KeyTexts;

/// The time between the signal to stop and the end of the listener.
const SHUTDOWN_DELAY: Duration = Duration::from_millis(300);

/// Serves until the node has stopped. The error ends the run.
pub(crate) type Serving = Pin<Box<dyn Future<Output = turmoil::Result>>>;

/// Serves the connections of one node.
pub(crate) trait Serve {
    /// Returns whether this is the server of the program, which adds no headers to those of the
    /// specification.
    fn is_program(&self) -> bool {
        false
    }

    /// Called at each start of a node.
    fn serve(&self, listener: Listener, ports: Ports) -> Serving;
}

/// The server of the program.
pub(crate) struct Host;

impl Serve for Host {
    fn is_program(&self) -> bool {
        true
    }

    fn serve(&self, listener: Listener, ports: Ports) -> Serving {
        let services = Services {
            arrivals: ports.arrivals(),
            limits: Limits::default(),
            observer: ports.node.observer(None),
            date_header: false,
            ..Services::new(ports.service())
        };
        Box::pin(async move {
            enrich_host::run(listener, services, ports.shutdown()).await;
            Ok(())
        })
    }
}

/// A gateway's own server.
pub(crate) struct Foreign<F>(pub(crate) F);

impl<F, S> Serve for Foreign<F>
where
    F: Fn(Listener, Ports) -> S,
    S: Future<Output = turmoil::Result> + 'static,
{
    fn serve(&self, listener: Listener, ports: Ports) -> Serving {
        Box::pin(self.0(listener, ports))
    }
}

/// The parts of a node that a gateway uses: the stores of this project, a clock, and an observer. All of their
/// calls are recorded for the invariants.
#[derive(Clone, derive_more::Debug)]
#[debug("Ports {{ number: {number:?}, .. }}")]
pub struct Ports {
    pub(crate) number: usize,
    pub(crate) node: Arc<Node>,
    pub(crate) price: Price,
    pub(crate) recorder: Arc<PortRecorder>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) trace: Trace,
    pub(crate) keys: KeyTexts,
}

impl Ports {
    /// Returns the service on this project's stores.
    pub fn service(&self) -> Service {
        self.record(self.stores())
    }

    /// Returns the service without the recorder, for a gateway that replaces some of its ports.
    pub fn stores(&self) -> Service {
        let mut policy = Policy::default();
        policy.price = self.price;
        let mut service = self.node.service(policy);
        service.keys = self.keys.port(service.keys);
        service
    }

    /// Records the calls of all ports of a service.
    pub fn record(&self, service: Service) -> Service {
        self.recorder.record_ports(service)
    }

    /// Returns the ids and arrival times of lookups, by the node's clock, which may be wrong.
    pub fn arrivals(&self) -> Arc<dyn Arrivals> {
        self.recorder.clone()
    }

    /// Returns the time of the node's clock.
    pub fn now(&self) -> Timestamp {
        self.recorder.now()
    }

    /// Returns the observer of lookups, which counts their usage and reports their ends to the invariants.
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(LoggingObserver { node: self.node.observer(None) })
    }

    /// Returns the tower layer with all of the above.
    pub fn layer(&self) -> EnrichLayer {
        EnrichLayer::new(self.service()).arrivals(self.arrivals()).observer(self.observer())
    }

    /// Connects to the gateway's own [database](crate::CreditDatabase).
    pub async fn connect(&self) -> io::Result<TcpStream> {
        TcpStream::connect((Server::Postgres.name(), DATABASE_PORT)).await
    }

    /// Completes when the node must stop: the gateway then completes the requests and the lookups in flight.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send + use<> {
        let Self { number, node, signals, trace, .. } = self.clone();
        async move {
            signals.stop.notified().await;
            node.drain(SHUTDOWN_DELAY, std::future::pending()).await;
            trace.record(Event::NodeStopping(number));
        }
    }
}

/// Logs the end of each lookup, as the program's server does by itself.
struct LoggingObserver {
    node: Arc<dyn Observer>,
}

impl Observer for LoggingObserver {
    fn now(&self) -> Duration {
        self.node.now()
    }

    fn times_ports(&self, started_at: Duration) -> bool {
        self.node.times_ports(started_at)
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        let (lookup_id, outcome) = (event.lookup_id, event.ending.outcome());
        match event.ending {
            Ending::Abandoned => tracing::error!(%lookup_id, outcome, "a lookup was dropped"),
            _ => {
                let (status, error) = (event.ending.status(), event.error.map(tracing::field::display));
                tracing::info!(%lookup_id, outcome, status, error, "a lookup has ended");
            }
        }
        self.node.finished(event);
    }

    fn client_gone(&self, lookup_id: LookupId) {
        tracing::debug!(%lookup_id, "the client of a lookup is gone");
        self.node.client_gone(lookup_id);
    }
}
