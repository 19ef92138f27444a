//! What can go wrong, and when.

use std::fmt;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::plan::{StoreKind, client_name, ms, node_name};
use crate::vendor;

/// Something that goes wrong for a while.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// When, from the start of the run.
    pub from: Duration,
    /// For how long.
    pub lasts: Duration,
    /// What.
    pub what: What,
}

/// What can go wrong. Nodes and clients count from 0.
#[derive(Clone, Debug)]
pub enum What {
    /// Nothing gets through.
    Partition(Link),
    /// Nothing gets through that way.
    OneWay(Link, Way),
    /// Everything is held back, and delivered late.
    Hold(Link),
    /// Everything takes this long.
    Slow(Link, Duration),
    /// So many messages are lost, of 1. TCP is not simulated down to its retransmissions: a lost message stalls its connection.
    Loss(Link, f64),
    /// A node loses its power, and comes up again in the end.
    Crash(usize),
    /// So many calls of a node's port fail, of 1.
    Port(usize, Port, Fault, f64),
    /// A node's disk does nothing, if its store has one: spends wait.
    Stall(usize),
    /// So many of the vendor's answers fail, of 1.
    Vendor(Fault, f64),
    /// A server loses its power, and comes up again in the end: Redis with nothing in its memory, PostgreSQL with its disk.
    Outage(Server),
    /// An operator revokes the clients' key, for good.
    Revoke,
}

/// A server that nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// It counts windows.
    Redis,
    /// It has keys and credits.
    Postgres,
}

/// The way between a node and somebody that it talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Who.
    pub peer: Peer,
    /// Which node.
    pub node: usize,
}

/// Somebody that a node talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// One of the clients.
    Client(usize),
    /// The vendor, whom its resolver asks.
    Vendor,
    /// One of the servers that its stores are on.
    Server(Server),
}

/// A direction on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What is said to the node.
    ToNode,
    /// What the node says.
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

/// How a call of a port fails, or a request to the vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does nothing, and says so: the vendor with a 500.
    Errors,
    /// It does nothing, and never answers.
    Hangs,
    /// It does its work this much later, even if nobody waits for it any more.
    Late(Duration),
    /// It does its work, and an error is answered; the vendor's answer breaks off half-way.
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
        // Long enough that the host gives a settlement up.
        let lasts_max = if matches!(what, What::Stall(_)) { 9_000 } else { 5_000 };
        Self { from: ms(dice, 0..6_000), lasts: ms(dice, 100..lasts_max), what }
    }

    /// Where the stores are servers, it is the network and the machines that fail, and no port has to be made to.
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
        // Long enough for leases to end, and for settlements to be given up.
        Self { from: ms(dice, 0..6_000), lasts: ms(dice, 100..9_000), what }
    }
}

impl What {
    /// What a soak counts it as.
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
    /// One of them, and how many calls it befalls, of 1.
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
    /// Its name on the network.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Client(client) => client_name(client),
            Self::Vendor => vendor::NAME.to_owned(),
            Self::Server(server) => server.name().to_owned(),
        }
    }
}

impl Server {
    /// Both of them.
    pub(crate) const ALL: [Self; 2] = [Self::Redis, Self::Postgres];

    /// Its name on the network.
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
