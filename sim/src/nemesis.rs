//! The nemesis: starts and ends the faults of the plan on schedule.

use std::sync::Arc;
use std::time::Duration;

use turmoil::Sim;

use crate::clock::NodeClock;
use crate::event::Event;
use crate::fault::{Fault, FaultKind, Port};
use crate::faulty_port::ActiveFaults;
use crate::plan::Plan;
use crate::stores::Stores;
use crate::topology::{Direction, Link, Peer, Server, node_name};
use crate::trace::Trace;

/// Message latency on a link after a slow-link fault has ended.
const LATENCY_DEFAULT: Duration = Duration::from_millis(10);

/// Starts and ends the faults of a run.
pub(crate) struct Nemesis {
    scheduled: Vec<(Fault, Phase)>,
    clients: usize,
    nodes: NodeFaults,
    vendor: Arc<ActiveFaults>,
    stores: Arc<Stores>,
    trace: Trace,
}

/// The faults of the nodes' ports and clocks, indexed by node.
pub(crate) struct NodeFaults {
    pub(crate) ports: Vec<Arc<ActiveFaults>>,
    pub(crate) clocks: Vec<NodeClock>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Pending,
    Active,
    Ended,
}

impl Nemesis {
    pub(crate) fn new(
        plan: &Plan,
        nodes: NodeFaults,
        vendor: Arc<ActiveFaults>,
        stores: Arc<Stores>,
        trace: Trace,
    ) -> Self {
        let scheduled = plan.faults.iter().map(|fault| (fault.clone(), Phase::Pending)).collect();
        Self { scheduled, clients: plan.clients.len(), nodes, vendor, stores, trace }
    }

    /// Starts and ends the faults that are due.
    ///
    /// If two faults overlap on the same link, node, port or server, both end when the first one ends. Restarting a node
    /// repairs all its links.
    pub(crate) fn act(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        for i in 0..self.scheduled.len() {
            let (Fault { start, duration, kind }, phase) = self.scheduled[i].clone();
            if phase == Phase::Pending && start <= now {
                self.trace.record_at(now, Event::FaultStarted(kind.to_string()));
                self.start(sim, &kind);
                self.scheduled[i].1 = Phase::Active;
            } else if phase == Phase::Active && start + duration <= now {
                self.trace.record_at(now, Event::FaultEnded(kind.to_string()));
                self.stop(sim, &kind);
                self.scheduled[i].1 = Phase::Ended;
            }
        }
    }

    /// Returns whether all faults are over.
    pub(crate) fn is_done(&self) -> bool {
        self.scheduled.iter().all(|(_, phase)| *phase == Phase::Ended)
    }

    fn start(&self, sim: &mut Sim<'_>, kind: &FaultKind) {
        match *kind {
            FaultKind::Partition(link) => sim.partition(peer(link), node(link)),
            FaultKind::OneWayPartition(link, Direction::ToNode) => {
                sim.partition_oneway(peer(link), node(link))
            }
            FaultKind::OneWayPartition(link, Direction::FromNode) => {
                sim.partition_oneway(node(link), peer(link))
            }
            FaultKind::Buffering(link) => sim.hold(peer(link), node(link)),
            FaultKind::Latency(link, latency) => sim.set_link_latency(peer(link), node(link), latency),
            FaultKind::MessageLoss(link, rate) => sim.set_link_fail_rate(peer(link), node(link), rate),
            FaultKind::NodeCrash(node) => {
                // Cuts the links before the crash. Otherwise the last messages of the node's connections would depend on the
                // order in which tokio drops its tasks, which differs between runs.
                self.node_links(node).for_each(|link| sim.partition(peer(link), node_name(node)));
                if sim.is_host_running(node_name(node)) {
                    self.trace.record_at(sim.elapsed(), Event::NodeCrashed(node));
                    sim.crash(node_name(node));
                }
            }
            FaultKind::Port(node, port, fault, rate) => self.nodes.ports[node].start(port, fault, rate),
            FaultKind::DiskStall(node) => self.nodes.ports[node].set_disk_stalled(true),
            FaultKind::Vendor(fault, rate) => self.vendor.start(Port::Resolver, fault, rate),
            FaultKind::ServerCrash(server) => {
                self.server_links(server).for_each(|link| sim.partition(peer(link), node(link)));
                if sim.is_host_running(server.name()) {
                    sim.crash(server.name());
                    self.stores.drop_volatile_data(server, sim.elapsed());
                }
            }
            FaultKind::Standby => self.stores.fail_over(),
            FaultKind::LockedLeases => self.stores.lock_leases(),
            FaultKind::FastClock(node, ahead) => self.nodes.clocks[node].set_ahead(ahead),
            FaultKind::KeyRevocation => self.stores.revoke(sim.elapsed()),
        }
    }

    fn stop(&self, sim: &mut Sim<'_>, kind: &FaultKind) {
        match *kind {
            FaultKind::Partition(link) | FaultKind::OneWayPartition(link, _) | FaultKind::Buffering(link) => {
                repair(sim, link)
            }
            FaultKind::Latency(link, _) => sim.set_link_latency(peer(link), node(link), LATENCY_DEFAULT),
            FaultKind::MessageLoss(link, _) => sim.set_link_fail_rate(peer(link), node(link), 0.0),
            FaultKind::NodeCrash(node) => {
                if !sim.is_host_running(node_name(node)) {
                    sim.bounce(node_name(node));
                }
                self.node_links(node).for_each(|link| repair(sim, link));
            }
            FaultKind::Port(node, port, ..) => self.nodes.ports[node].stop(port),
            FaultKind::DiskStall(node) => self.nodes.ports[node].set_disk_stalled(false),
            FaultKind::Vendor(..) => self.vendor.stop(Port::Resolver),
            FaultKind::ServerCrash(server) => {
                if !sim.is_host_running(server.name()) {
                    sim.bounce(server.name());
                }
                self.server_links(server).for_each(|link| repair(sim, link));
            }
            FaultKind::Standby => self.stores.promote(),
            FaultKind::LockedLeases => self.stores.unlock_leases(),
            FaultKind::FastClock(node, _) => self.nodes.clocks[node].set_ahead(Duration::ZERO),
            FaultKind::KeyRevocation => {}
        }
    }

    fn node_links(&self, node: usize) -> impl Iterator<Item = Link> {
        let servers = self.stores.servers().iter().map(|server| Peer::Server(*server));
        let peers = (0..self.clients).map(Peer::Client).chain([Peer::Vendor]).chain(servers);
        peers.map(move |peer| Link { peer, node })
    }

    fn server_links(&self, server: Server) -> impl Iterator<Item = Link> {
        (0..self.nodes.ports.len()).map(move |node| Link { peer: Peer::Server(server), node })
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
