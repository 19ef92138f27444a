//! The nemesis: injects the plan's faults and removes them on schedule.

use std::sync::Arc;
use std::time::Duration;

use turmoil::Sim;

use crate::event::Event;
use crate::faulty::Faults;
use crate::plan::{Plan, node_name};
use crate::stores::Stores;
use crate::trace::Trace;
use crate::trouble::{Link, Peer, Port, Server, Trouble, Way, What};

/// Message latency on a link after a slow-link fault has ended.
const LATENCY: Duration = Duration::from_millis(10);

pub(crate) struct Nemesis {
    troubles: Vec<(Trouble, Phase)>,
    clients: usize,
    /// Indexed by node.
    faults: Vec<Arc<Faults>>,
    vendor: Arc<Faults>,
    stores: Arc<Stores>,
    trace: Trace,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Ahead,
    On,
    Over,
}

impl Nemesis {
    pub(crate) fn new(
        plan: &Plan,
        faults: Vec<Arc<Faults>>,
        vendor: Arc<Faults>,
        stores: Arc<Stores>,
        trace: Trace,
    ) -> Self {
        let troubles = plan.troubles.iter().map(|trouble| (trouble.clone(), Phase::Ahead)).collect();
        Self { troubles, clients: plan.clients.len(), faults, vendor, stores, trace }
    }

    /// Starts and ends the faults that are due.
    ///
    /// If two faults overlap on the same link, node or port, both end when the first one ends. Restarting a node repairs all
    /// its links.
    pub(crate) fn act(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        for i in 0..self.troubles.len() {
            let (Trouble { from, lasts, what }, phase) = self.troubles[i].clone();
            if phase == Phase::Ahead && from <= now {
                self.trace.note_at(now, Event::Nemesis(format!("{what}")));
                self.begin(sim, &what);
                self.troubles[i].1 = Phase::On;
            } else if phase == Phase::On && from + lasts <= now {
                self.trace.note_at(now, Event::Nemesis(format!("no more: {what}")));
                self.end(sim, &what);
                self.troubles[i].1 = Phase::Over;
            }
        }
    }

    /// Returns whether all faults are over.
    pub(crate) fn is_done(&self) -> bool {
        self.troubles.iter().all(|(_, phase)| *phase == Phase::Over)
    }

    fn begin(&self, sim: &mut Sim<'_>, what: &What) {
        match *what {
            What::Partition(link) => sim.partition(peer(link), node(link)),
            What::OneWay(link, Way::ToNode) => sim.partition_oneway(peer(link), node(link)),
            What::OneWay(link, Way::FromNode) => sim.partition_oneway(node(link), peer(link)),
            What::Hold(link) => sim.hold(peer(link), node(link)),
            What::Slow(link, latency) => sim.set_link_latency(peer(link), node(link), latency),
            What::Loss(link, rate) => sim.set_link_fail_rate(peer(link), node(link), rate),
            What::Crash(node) => {
                // Cuts the links before the crash. Otherwise the last messages of the node's connections would depend on the
                // order in which tokio drops its tasks, which differs between runs.
                self.links(node).for_each(|link| sim.partition(peer(link), node_name(node)));
                if sim.is_host_running(node_name(node)) {
                    self.trace.note_at(sim.elapsed(), Event::Crashed(node));
                    sim.crash(node_name(node));
                }
            }
            What::Port(node, port, fault, rate) => self.faults[node].begin(port, fault, rate),
            What::Stall(node) => self.faults[node].stall(true),
            What::Vendor(fault, rate) => self.vendor.begin(Port::Resolver, fault, rate),
            What::Outage(server) => {
                self.links_of(server).for_each(|link| sim.partition(peer(link), node(link)));
                if sim.is_host_running(server.name()) {
                    sim.crash(server.name());
                    self.stores.lose_memory_of(server, sim.elapsed());
                }
            }
            What::Revoke => self.stores.revoke(sim.elapsed()),
        }
    }

    fn end(&self, sim: &mut Sim<'_>, what: &What) {
        match *what {
            What::Partition(link) | What::OneWay(link, _) | What::Hold(link) => repair(sim, link),
            What::Slow(link, _) => sim.set_link_latency(peer(link), node(link), LATENCY),
            What::Loss(link, _) => sim.set_link_fail_rate(peer(link), node(link), 0.0),
            What::Crash(node) => {
                if !sim.is_host_running(node_name(node)) {
                    sim.bounce(node_name(node));
                }
                self.links(node).for_each(|link| repair(sim, link));
            }
            What::Port(node, port, ..) => self.faults[node].end(port),
            What::Stall(node) => self.faults[node].stall(false),
            What::Vendor(..) => self.vendor.end(Port::Resolver),
            What::Outage(server) => {
                if !sim.is_host_running(server.name()) {
                    sim.bounce(server.name());
                }
                self.links_of(server).for_each(|link| repair(sim, link));
            }
            What::Revoke => {}
        }
    }

    fn links(&self, node: usize) -> impl Iterator<Item = Link> {
        let servers = self.stores.servers().iter().map(|server| Peer::Server(*server));
        let peers = (0..self.clients).map(Peer::Client).chain([Peer::Vendor]).chain(servers);
        peers.map(move |peer| Link { peer, node })
    }

    fn links_of(&self, server: Server) -> impl Iterator<Item = Link> {
        (0..self.faults.len()).map(move |node| Link { peer: Peer::Server(server), node })
    }
}

fn repair(sim: &Sim<'_>, link: Link) {
    sim.repair(peer(link), node(link));
    sim.release(peer(link), node(link));
}

fn peer(link: Link) -> String {
    link.peer.name()
}

fn node(link: Link) -> String {
    node_name(link.node)
}
