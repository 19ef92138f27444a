//! The machines of a run, their names on the network, and the links between them.

use std::fmt;

/// The TCP port of nodes and of the vendor.
pub(crate) const HTTP_PORT: u16 = 80;

/// The TCP port of a gateway's own database, on the machine of PostgreSQL.
pub(crate) const DATABASE_PORT: u16 = 5_432;

/// The vendor's name on the network.
pub(crate) const VENDOR: &str = "vendor";

/// The name on the network of the client that sends requests after healing.
pub(crate) const PROBER: &str = "prober";

/// How often the prober sends its request to a node until it receives a 200.
///
/// A simulated connection that lost a message never recovers and fails the next request that uses it. A node
/// has several connections to its vendor and its servers.
pub(crate) const PROBES_MAX: usize = 8;

/// The stores of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreKind {
    /// SQLite in a data directory with one node. A crash closes it, a restart opens it again.
    Sqlite,
    /// Redis and PostgreSQL on separate machines, shared over the network by this number of nodes.
    Servers(usize),
}

/// A server that nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Server {
    /// Stores the rate-limit windows.
    Redis,
    /// Stores keys, credits, people and opt-outs.
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
#[non_exhaustive]
pub enum Peer {
    /// One of the clients.
    Client(usize),
    /// The vendor that the resolver queries.
    Vendor,
    /// A server with the node's stores.
    Server(Server),
}

/// A direction on a link. Exhaustive: there are these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Messages to the node.
    ToNode,
    /// Messages from the node.
    FromNode,
}

impl StoreKind {
    /// Returns the number of nodes.
    pub(crate) fn nodes(self) -> usize {
        match self {
            Self::Sqlite => 1,
            Self::Servers(nodes) => nodes,
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

impl Peer {
    /// Returns the peer's name on the network.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Client(client) => client_name(client),
            Self::Vendor => VENDOR.to_owned(),
            Self::Server(server) => server.name().to_owned(),
        }
    }
}

/// Returns a node's name on the network.
pub(crate) fn node_name(node: usize) -> String {
    format!("node-{}", node + 1)
}

/// Returns a client's name on the network.
pub(crate) fn client_name(client: usize) -> String {
    format!("client-{}", client + 1)
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <-> {}", self.peer.name(), node_name(self.node))
    }
}
