//! The faults of a simulated run and their schedule.

use std::fmt;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::clock::random_ms;
use crate::topology::{Direction, Link, Peer, Server, StoreKind, VENDOR, node_name};

/// A fault with its schedule.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The start, relative to the start of the run.
    pub start: Duration,
    /// The duration.
    pub duration: Duration,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// The kind of a fault. Nodes and clients are numbered from 0.
#[derive(Clone, Debug)]
pub enum FaultKind {
    /// The link drops all messages.
    Partition(Link),
    /// The link drops all messages in one direction.
    OneWayPartition(Link, Direction),
    /// The link buffers all messages and delivers them when the fault ends.
    Buffering(Link),
    /// Every message on the link takes this long.
    Latency(Link, Duration),
    /// The link drops this fraction of messages, from 0 to 1. TCP retransmissions are not simulated, so a lost message
    /// stalls its connection.
    MessageLoss(Link, f64),
    /// The node loses power and restarts when the fault ends.
    NodeCrash(usize),
    /// This fraction of the node's calls to the port fail, from 0 to 1.
    Port(usize, Port, PortFault, f64),
    /// The node's disk stalls, so spends wait. Has no effect on stores without a disk.
    DiskStall(usize),
    /// This fraction of the vendor's responses fail, from 0 to 1.
    Vendor(PortFault, f64),
    /// The server loses power and restarts when the fault ends. Redis loses its data, PostgreSQL
    /// the transactions that are not durable.
    ServerCrash(Server),
    /// PostgreSQL's address leads to a standby, which is read-only and lags: it receives no changes. When the fault ends, the
    /// address leads to the primary again, but open connections still lead to the standby.
    Standby,
    /// Another session of PostgreSQL locks the leases of the clients' workspace.
    LockedLeases,
    /// The node's clock is ahead by this much. Only for stores on servers: other stores have no clock of their own.
    FastClock(usize, Duration),
    /// An operator revokes the clients' key permanently.
    KeyRevocation,
}

/// A port of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// [`enrich_lib::ports::Keys`]
    Keys,
    /// [`enrich_lib::ports::Windows`]
    Windows,
    /// [`enrich_lib::ports::Credits`]
    Credits,
    /// [`enrich_lib::ports::Resolver`]
    Resolver,
}

/// How a port call or a vendor request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortFault {
    /// The call fails without any effect. The vendor replies 500.
    Error,
    /// The call has no effect and never returns.
    Hang,
    /// The call executes after this delay, even if the caller has stopped waiting.
    Delay(Duration),
    /// The call executes but returns an error. The vendor's response is truncated.
    ResponseLost,
}

impl Fault {
    pub(crate) fn draw(rng: &mut StdRng, stores: StoreKind, clients: usize) -> Self {
        if let StoreKind::Servers(nodes) = stores {
            return Self::draw_for_servers(rng, nodes, clients);
        }
        let node = rng.random_range(0..stores.nodes());
        let is_vendor = rng.random_bool(0.2);
        let peer = if is_vendor { Peer::Vendor } else { Peer::Client(rng.random_range(0..clients)) };
        let link = Link { peer, node };
        let kind = match rng.random_range(0..14) {
            0 => FaultKind::Partition(link),
            1 => FaultKind::Buffering(link),
            2 => FaultKind::Latency(link, random_ms(rng, 200..2_000)),
            3 => FaultKind::MessageLoss(link, rng.random_range(0.05..0.5)),
            4 | 5 => FaultKind::NodeCrash(node),
            6 | 7 => FaultKind::OneWayPartition(link, Direction::draw(rng)),
            8 | 9 => {
                let (fault, rate) = PortFault::draw(rng);
                FaultKind::Vendor(fault, rate)
            }
            10 | 11 if stores == StoreKind::Sqlite => FaultKind::DiskStall(node),
            _ => {
                let ports = [Port::Keys, Port::Windows, Port::Credits, Port::Resolver];
                let port = *ports.choose(rng).expect("not empty");
                let (fault, rate) = PortFault::draw(rng);
                FaultKind::Port(node, port, fault, rate)
            }
        };
        // Stalls may last long enough for the host to give up on a settlement.
        let ms_max = if matches!(kind, FaultKind::DiskStall(_)) { 9_000 } else { 5_000 };
        Self { start: random_ms(rng, 0..6_000), duration: random_ms(rng, 100..ms_max), kind }
    }

    /// Draws a fault for stores on servers. Only the network and the machines fail; no faults are injected into the store
    /// ports.
    fn draw_for_servers(rng: &mut StdRng, nodes: usize, clients: usize) -> Self {
        let node = rng.random_range(0..nodes);
        let server = if rng.random_bool(0.3) { Server::Redis } else { Server::Postgres };
        let peer = match rng.random_range(0..10) {
            0 => Peer::Vendor,
            1 | 2 => Peer::Client(rng.random_range(0..clients)),
            _ => Peer::Server(server),
        };
        let link = Link { peer, node };
        let kind = match rng.random_range(0..22) {
            0 | 1 => FaultKind::Partition(link),
            2 | 3 => FaultKind::Buffering(link),
            4 => FaultKind::Latency(link, random_ms(rng, 30..1_200)),
            5 | 6 => FaultKind::MessageLoss(link, rng.random_range(0.05..0.5)),
            7..10 => FaultKind::NodeCrash(node),
            10 | 11 => FaultKind::OneWayPartition(link, Direction::draw(rng)),
            12 | 13 => FaultKind::ServerCrash(server),
            14 if rng.random_bool(0.3) => FaultKind::KeyRevocation,
            15 | 16 => FaultKind::FastClock(node, random_ms(rng, 1_000..120_000)),
            17 | 18 => FaultKind::Standby,
            19 | 20 => FaultKind::LockedLeases,
            _ => {
                let (fault, rate) = PortFault::draw(rng);
                FaultKind::Vendor(fault, rate)
            }
        };
        // Long enough for leases to expire and for the host to give up on settlements.
        Self { start: random_ms(rng, 0..6_000), duration: random_ms(rng, 100..9_000), kind }
    }
}

impl Direction {
    fn draw(rng: &mut StdRng) -> Self {
        if rng.random_bool(0.5) { Self::ToNode } else { Self::FromNode }
    }
}

impl PortFault {
    /// Draws a fault and the fraction of calls that it affects, from 0 to 1.
    fn draw(rng: &mut StdRng) -> (Self, f64) {
        let delay = Self::Delay(random_ms(rng, 20..12_000));
        let faults = [Self::Error, Self::Hang, delay, Self::ResponseLost];
        let rate = *[0.3, 0.6, 1.0].choose(rng).expect("not empty");
        (*faults.choose(rng).expect("not empty"), rate)
    }
}

impl FaultKind {
    /// Returns the name under which statistics count this fault.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Partition(_) => "partition",
            Self::OneWayPartition(..) => "one-way partition",
            Self::Buffering(_) => "link buffers messages",
            Self::Latency(..) => "slow link",
            Self::MessageLoss(..) => "messages lost",
            Self::NodeCrash(_) => "node crash",
            Self::DiskStall(_) => "disk stall",
            Self::Port(_, _, PortFault::Error, _) => "port error",
            Self::Port(_, _, PortFault::Hang, _) => "port hang",
            Self::Port(_, _, PortFault::Delay(_), _) => "port delay",
            Self::Port(_, _, PortFault::ResponseLost, _) => "port response lost",
            Self::Vendor(PortFault::Error, _) => "vendor error",
            Self::Vendor(PortFault::Hang, _) => "vendor hang",
            Self::Vendor(PortFault::Delay(_), _) => "vendor delay",
            Self::Vendor(PortFault::ResponseLost, _) => "vendor response truncated",
            Self::ServerCrash(Server::Redis) => "Redis crash",
            Self::ServerCrash(Server::Postgres) => "PostgreSQL crash",
            Self::Standby => "PostgreSQL standby",
            Self::LockedLeases => "leases locked",
            Self::FastClock(..) => "fast clock",
            Self::KeyRevocation => "key revoked",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {:?} for {:?}: {}", self.start, self.duration, self.kind)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition(link) => write!(f, "{link} drops all messages"),
            Self::OneWayPartition(link, Direction::ToNode) => write!(f, "{link} drops messages to the node"),
            Self::OneWayPartition(link, Direction::FromNode) => {
                write!(f, "{link} drops messages from the node")
            }
            Self::Buffering(link) => write!(f, "{link} buffers all messages"),
            Self::Latency(link, latency) => write!(f, "{link} has a latency of {latency:?}"),
            Self::MessageLoss(link, rate) => write!(f, "{link} drops {:.0} % of messages", rate * 100.0),
            Self::NodeCrash(node) => write!(f, "{} is down", node_name(*node)),
            Self::Port(node, port, fault, rate) => {
                write!(f, "{port:?} of {}: {fault:?}, {:.0} % of calls", node_name(*node), rate * 100.0)
            }
            Self::DiskStall(node) => write!(f, "the disk of {} stalls", node_name(*node)),
            Self::Vendor(fault, rate) => write!(f, "{VENDOR}: {fault:?}, {:.0} % of requests", rate * 100.0),
            Self::ServerCrash(server) => write!(f, "{} is down", server.name()),
            Self::Standby => f.write_str("the address of PostgreSQL leads to a standby"),
            Self::LockedLeases => f.write_str("the leases of the clients' workspace are locked"),
            Self::FastClock(node, ahead) => write!(f, "the clock of {} is {ahead:?} ahead", node_name(*node)),
            Self::KeyRevocation => f.write_str("the clients' key is revoked"),
        }
    }
}
