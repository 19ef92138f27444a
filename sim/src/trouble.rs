//! The faults of a simulated run and their schedule.

use std::fmt;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::plan::{StoreKind, client_name, ms, node_name};
use crate::vendor;

/// A fault with its schedule.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The start, relative to the start of the run.
    pub from: Duration,
    /// The duration.
    pub lasts: Duration,
    /// The fault.
    pub what: What,
}

/// An injected fault. Nodes and clients are numbered from 0.
#[derive(Clone, Debug)]
pub enum What {
    /// The link drops all messages.
    Partition(Link),
    /// The link drops all messages in one direction.
    OneWay(Link, Way),
    /// The link delays all messages until the fault ends.
    Hold(Link),
    /// Every message on the link takes this long.
    Slow(Link, Duration),
    /// The link drops this fraction of messages, from 0 to 1. TCP retransmissions are not simulated, so a lost message
    /// stalls its connection.
    Loss(Link, f64),
    /// The node loses power and restarts when the fault ends.
    Crash(usize),
    /// This fraction of the node's calls to the port fail, from 0 to 1.
    Port(usize, Port, Fault, f64),
    /// The node's disk stalls, so spends wait. Has no effect on stores without a disk.
    Stall(usize),
    /// This fraction of the vendor's responses fail, from 0 to 1.
    Vendor(Fault, f64),
    /// The server loses power and restarts when the fault ends. Redis loses its data; PostgreSQL keeps it on disk.
    Outage(Server),
    /// An operator revokes the clients' key permanently.
    Revoke,
}

/// A server that nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// Stores the rate-limit windows.
    Redis,
    /// Stores keys and credits.
    Postgres,
}

/// The network link between a node and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The peer.
    pub peer: Peer,
    /// The node.
    pub node: usize,
}

/// A machine that nodes communicate with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// One of the clients.
    Client(usize),
    /// The vendor that the resolver queries.
    Vendor,
    /// A server with the node's stores.
    Server(Server),
}

/// A direction on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Messages to the node.
    ToNode,
    /// Messages from the node.
    FromNode,
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
pub enum Fault {
    /// The call fails without any effect. The vendor replies 500.
    Errors,
    /// The call has no effect and never returns.
    Hangs,
    /// The call executes after this delay, even if the caller has stopped waiting.
    Late(Duration),
    /// The call executes but returns an error. The vendor's response breaks off halfway.
    AnswerLost,
}

impl Trouble {
    pub(crate) fn draw(dice: &mut StdRng, stores: StoreKind, clients: usize) -> Self {
        if let StoreKind::Servers(nodes) = stores {
            return Self::draw_of_servers(dice, nodes, clients);
        }
        let node = dice.random_range(0..stores.nodes());
        let is_vendors = dice.random_bool(0.2);
        let peer = if is_vendors { Peer::Vendor } else { Peer::Client(dice.random_range(0..clients)) };
        let link = Link { peer, node };
        let what = match dice.random_range(0..14) {
            0 => What::Partition(link),
            1 => What::Hold(link),
            2 => What::Slow(link, ms(dice, 200..2_000)),
            3 => What::Loss(link, dice.random_range(0.05..0.5)),
            4 | 5 => What::Crash(node),
            6 | 7 => What::OneWay(link, if dice.random_bool(0.5) { Way::ToNode } else { Way::FromNode }),
            8 | 9 => {
                let (fault, rate) = Fault::draw(dice);
                What::Vendor(fault, rate)
            }
            10 | 11 if stores == StoreKind::Sqlite => What::Stall(node),
            _ => {
                let ports = [Port::Keys, Port::Windows, Port::Credits, Port::Resolver];
                let port = *ports.choose(dice).expect("there are some");
                let (fault, rate) = Fault::draw(dice);
                What::Port(node, port, fault, rate)
            }
        };
        // Stalls may last long enough for the host to give up on a settlement.
        let lasts_max = if matches!(what, What::Stall(_)) { 9_000 } else { 5_000 };
        Self { from: ms(dice, 0..6_000), lasts: ms(dice, 100..lasts_max), what }
    }

    /// Draws a fault for stores on servers. Only the network and the machines fail; no faults are injected into the store
    /// ports.
    fn draw_of_servers(dice: &mut StdRng, nodes: usize, clients: usize) -> Self {
        let node = dice.random_range(0..nodes);
        let server = if dice.random_bool(0.3) { Server::Redis } else { Server::Postgres };
        let peer = match dice.random_range(0..10) {
            0 => Peer::Vendor,
            1 | 2 => Peer::Client(dice.random_range(0..clients)),
            _ => Peer::Server(server),
        };
        let link = Link { peer, node };
        let what = match dice.random_range(0..16) {
            0 | 1 => What::Partition(link),
            2 | 3 => What::Hold(link),
            4 => What::Slow(link, ms(dice, 30..1_200)),
            5 | 6 => What::Loss(link, dice.random_range(0.05..0.5)),
            7..10 => What::Crash(node),
            10 | 11 => What::OneWay(link, if dice.random_bool(0.5) { Way::ToNode } else { Way::FromNode }),
            12 | 13 => What::Outage(server),
            14 if dice.random_bool(0.3) => What::Revoke,
            _ => {
                let (fault, rate) = Fault::draw(dice);
                What::Vendor(fault, rate)
            }
        };
        // Long enough for leases to expire and for the host to give up on settlements.
        Self { from: ms(dice, 0..6_000), lasts: ms(dice, 100..9_000), what }
    }
}

impl What {
    /// Returns the name under which statistics count this fault.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Partition(_) => "partition",
            Self::OneWay(..) => "one-way partition",
            Self::Hold(_) => "link holds back",
            Self::Slow(..) => "slow link",
            Self::Loss(..) => "messages lost",
            Self::Crash(_) => "crash",
            Self::Stall(_) => "disk stalls",
            Self::Port(_, _, Fault::Errors, _) => "port errors",
            Self::Port(_, _, Fault::Hangs, _) => "port hangs",
            Self::Port(_, _, Fault::Late(_), _) => "port works late",
            Self::Port(_, _, Fault::AnswerLost, _) => "port's answer lost",
            Self::Vendor(Fault::Errors, _) => "vendor errors",
            Self::Vendor(Fault::Hangs, _) => "vendor hangs",
            Self::Vendor(Fault::Late(_), _) => "vendor answers late",
            Self::Vendor(Fault::AnswerLost, _) => "vendor breaks off",
            Self::Outage(Server::Redis) => "Redis crashes",
            Self::Outage(Server::Postgres) => "PostgreSQL crashes",
            Self::Revoke => "key revoked",
        }
    }
}

impl Fault {
    /// Draws a fault and the fraction of calls that it affects, from 0 to 1.
    fn draw(dice: &mut StdRng) -> (Self, f64) {
        let late = Self::Late(ms(dice, 20..12_000));
        let faults = [Self::Errors, Self::Hangs, late, Self::AnswerLost];
        let rate = *[0.3, 0.6, 1.0].choose(dice).expect("there are some");
        (*faults.choose(dice).expect("there are some"), rate)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {:?} for {:?}: {}", self.from, self.lasts, self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition(link) => write!(f, "{link} is cut"),
            Self::OneWay(link, Way::ToNode) => write!(f, "{link} is cut towards the node"),
            Self::OneWay(link, Way::FromNode) => write!(f, "{link} is cut from the node"),
            Self::Hold(link) => write!(f, "{link} holds everything back"),
            Self::Slow(link, latency) => write!(f, "{link} takes {latency:?}"),
            Self::Loss(link, rate) => write!(f, "{link} loses {rate:.2} of 1"),
            Self::Crash(node) => write!(f, "{} is down", node_name(*node)),
            Self::Port(node, port, fault, rate) => {
                write!(f, "{port:?} of {}: {fault:?}, {rate} of 1", node_name(*node))
            }
            Self::Stall(node) => write!(f, "the disk of {} stalls", node_name(*node)),
            Self::Vendor(fault, rate) => write!(f, "{}: {fault:?}, {rate} of 1", vendor::NAME),
            Self::Outage(server) => write!(f, "{} is down", server.name()),
            Self::Revoke => f.write_str("the clients' key is revoked"),
        }
    }
}

impl Peer {
    /// Returns the peer's name on the network.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Client(client) => client_name(client),
            Self::Vendor => vendor::NAME.to_owned(),
            Self::Server(server) => server.name().to_owned(),
        }
    }
}

impl Server {
    /// All servers.
    pub(crate) const ALL: [Self; 2] = [Self::Redis, Self::Postgres];

    /// Returns the server's name on the network.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <-> {}", self.peer.name(), node_name(self.node))
    }
}
