//! The faults of a simulated run and their schedule. `draw` draws them from a seed.

mod draw;

use std::fmt;
use std::time::Duration;

use enrich_fakes::postgres::Severity;
use strum::{IntoStaticStr, VariantNames};

use crate::topology::{Direction, Link, Server, VENDOR, node_name};

/// A fault with its schedule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fault {
    /// The start, relative to the start of the run.
    pub start: Duration,
    /// The duration. [`Fault::LASTING`] means until all clients have finished.
    pub duration: Duration,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// The kind of a fault. Nodes and clients are numbered from 0.
#[derive(Clone, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum FaultKind {
    /// The link drops all messages.
    Partition(Link),
    /// The link drops all messages in one direction.
    OneWayPartition(Link, Direction),
    /// The link buffers all messages and delivers them when the fault ends.
    Buffering(Link),
    /// Every message on the link takes this long.
    Latency(Link, Duration),
    /// The link drops this fraction of messages, from 0 to 1. TCP retransmissions are not simulated, so a
    /// lost message stalls its connection.
    MessageLoss(Link, f64),
    /// The node loses power and restarts when the fault ends.
    NodeCrash(usize),
    /// The node loses power when it has begun a spend, if it does so before the fault ends. It restarts after
    /// the duration.
    CrashDuringSpend(usize),
    /// The node shuts down gracefully: it finishes its lookups, and starts again when the fault ends, or
    /// later.
    Shutdown(usize),
    /// The node replaces its sources by others at the start, and those by the first ones at the end. The others
    /// have another profile of each person, also of those that the first ones do not find.
    Reload(usize),
    /// The disk of the node fails, which is on SQLite.
    Disk(usize, DiskFault),
    /// This fraction of the vendor's responses fail, from 0 to 1.
    Vendor(VendorFault, f64),
    /// The server loses power and restarts when the fault ends. Redis loses its data, PostgreSQL
    /// the transactions that are not durable.
    ServerCrash(Server),
    /// PostgreSQL's address leads to a standby, which is read-only and lags: it receives no changes. When the
    /// fault ends, the address leads to the primary again, but open connections still lead to the standby.
    Standby,
    /// Another session of PostgreSQL locks the balance of the clients' workspace.
    LockedWorkspace,
    /// The commit of a spend in progress fails with an error of this severity, and PostgreSQL ends. When the
    /// fault ends, it starts again.
    FailedCommit {
        /// FATAL or PANIC.
        severity: Severity,
        /// True if the commit is executed when the server starts again, and false if it is lost.
        is_replayed: bool,
    },
    /// The synchronous standby of PostgreSQL receives nothing. Synchronous commits wait for it.
    StandbyAway,
    /// An operator terminates all sessions of PostgreSQL.
    TerminatedSessions,
    /// An operator cancels all statements of PostgreSQL, also those whose commits wait for the standby.
    CanceledStatements,
    /// PostgreSQL is down. When the fault ends, its synchronous standby is the primary.
    Promotion,
    /// PostgreSQL is read-only.
    ReadOnly,
    /// Another session of PostgreSQL locks this table.
    LockedTable(&'static str),
    /// Other clients use all connections of PostgreSQL, also half of those that nodes had.
    NoConnections,
    /// While a spend is in progress, what nodes send to PostgreSQL on the connections that are open arrives
    /// this much later, also if they have closed the connection.
    LateStatements(Duration),
    /// The node's clock is ahead by this many milliseconds. Negative if it is behind.
    WrongClock(usize, i64),
}

/// How a disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum DiskFault {
    /// The writer of the ledger stalls, so spends wait.
    Stall,
    /// Reads fail.
    Reads,
    /// Writes of logs fail after this number of them. Their data may be found by a process that starts.
    Writes(u32),
    /// Syncs of logs fail. The node ends, and starts again.
    Syncs,
    /// The same, and the data of these syncs is never durable, although later syncs succeed. Random worlds do
    /// not have this fault: a power cut while the node starts again would damage the database.
    LostSyncs,
    /// No file can grow.
    Full,
    /// The power is cut after this number of writes, syncs and deletions: what is not synced is lost. The
    /// node restarts when the fault ends.
    PowerCut(u32),
}

/// How a request to the vendor fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum VendorFault {
    /// The vendor replies 500.
    Error,
    /// The vendor never replies.
    Hang,
    /// The vendor replies after this delay.
    Delay(Duration),
    /// The reply is truncated.
    Truncated,
}

impl Fault {
    /// Longer than any run.
    pub const LASTING: Duration = Duration::from_secs(24 * 3_600);
}

impl FaultKind {
    /// Returns the names of all kinds, as [`FaultKind::name`] returns them, except those that random worlds do not
    /// have.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let is_own = |name: &&&str| !["disk", "vendor", "server-crash"].contains(name);
        let of_disk = DiskFault::VARIANTS.iter().filter(|name| **name != "lost-syncs");
        let names = Self::VARIANTS.iter().filter(is_own).chain(of_disk).chain(VendorFault::VARIANTS);
        names.copied().chain(Server::ALL.map(Server::name))
    }

    /// Returns whether a link delivers no message while the fault lasts.
    pub(crate) fn cuts_link(&self) -> bool {
        matches!(self, Self::Partition(_) | Self::OneWayPartition(..) | Self::Buffering(_))
    }

    /// Returns the name under which statistics count this fault: that of the server for its crash.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Disk(_, fault) => fault.into(),
            Self::Vendor(fault, _) => fault.into(),
            Self::ServerCrash(server) => server.name(),
            other => other.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, duration, kind } = self;
        match *duration {
            Self::LASTING => write!(f, "from {start:?} to the end: {kind}"),
            _ => write!(f, "from {start:?} for {duration:?}: {kind}"),
        }
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
            Self::NodeCrash(node) | Self::CrashDuringSpend(node) => write!(f, "{} is down", node_name(*node)),
            Self::Shutdown(node) => write!(f, "{} shuts down gracefully", node_name(*node)),
            Self::Reload(node) => write!(f, "{} has other sources", node_name(*node)),
            Self::Disk(node, fault) => write!(f, "the disk of {}: {fault:?}", node_name(*node)),
            Self::Vendor(fault, rate) => write!(f, "{VENDOR}: {fault:?}, {:.0} % of requests", rate * 100.0),
            Self::ServerCrash(server) => write!(f, "{} is down", server.name()),
            Self::Standby => f.write_str("the address of PostgreSQL leads to a standby"),
            Self::LockedWorkspace => f.write_str("the clients' workspace is locked"),
            Self::FailedCommit { severity, is_replayed } => {
                let outcome = if *is_replayed { "replayed" } else { "lost" };
                write!(f, "a commit fails with {} and is {outcome}", severity.name())
            }
            Self::StandbyAway => f.write_str("the synchronous standby is away"),
            Self::TerminatedSessions => f.write_str("the sessions of PostgreSQL are terminated"),
            Self::CanceledStatements => f.write_str("the statements of PostgreSQL are canceled"),
            Self::Promotion => f.write_str("PostgreSQL is down, and its standby is promoted"),
            Self::ReadOnly => f.write_str("PostgreSQL is read-only"),
            Self::LockedTable(table) => write!(f, "the table {table} is locked"),
            Self::NoConnections => f.write_str("other clients use all connections of PostgreSQL"),
            Self::LateStatements(delay) => {
                write!(f, "what is sent on open connections to PostgreSQL is late by {delay:?}")
            }
            Self::WrongClock(node, ahead_ms) => {
                write!(f, "the clock of {} is {ahead_ms:+} ms ahead", node_name(*node))
            }
        }
    }
}
