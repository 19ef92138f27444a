//! What can go wrong, and when.

use std::fmt;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::plan::{client_name, ms, node_name};

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
}

/// The way between a client and a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Which client.
    pub client: usize,
    /// Which node.
    pub node: usize,
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

/// How a call of a port fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does nothing, and says so.
    Errors,
    /// It does nothing, and never answers.
    Hangs,
    /// It does its work this much later, even if nobody waits for it any more.
    Late(Duration),
    /// It does its work, and an error is answered.
    AnswerLost,
}

impl Trouble {
    pub(crate) fn draw(dice: &mut StdRng, nodes: usize, clients: usize) -> Self {
        let (node, client) = (dice.random_range(0..nodes), dice.random_range(0..clients));
        let link = Link { client, node };
        let what = match dice.random_range(0..10) {
            0 => What::Partition(link),
            1 => What::Hold(link),
            2 => What::Slow(link, ms(dice, 200..2_000)),
            3 => What::Loss(link, dice.random_range(0.05..0.5)),
            4 | 5 => What::Crash(node),
            _ => {
                let ports = [Port::Keys, Port::Windows, Port::Credits, Port::Resolver];
                let port = *ports.choose(dice).expect("there are some");
                let late = Fault::Late(ms(dice, 20..12_000));
                let faults = [Fault::Errors, Fault::Hangs, late, Fault::AnswerLost];
                let rate = *[0.3, 0.6, 1.0].choose(dice).expect("there are some");
                What::Port(node, port, *faults.choose(dice).expect("there are some"), rate)
            }
        };
        Self { from: ms(dice, 0..6_000), lasts: ms(dice, 100..5_000), what }
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
            Self::Hold(link) => write!(f, "{link} holds everything back"),
            Self::Slow(link, latency) => write!(f, "{link} takes {latency:?}"),
            Self::Loss(link, rate) => write!(f, "{link} loses {rate:.2} of 1"),
            Self::Crash(node) => write!(f, "{} is down", node_name(*node)),
            Self::Port(node, port, fault, rate) => {
                write!(f, "{port:?} of {}: {fault:?}, {rate} of 1", node_name(*node))
            }
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <-> {}", client_name(self.client), node_name(self.node))
    }
}
