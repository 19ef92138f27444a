//! The faults of a run, by what they affect.

use std::time::Duration;

use enrich_fakes::postgres::Postgres;

use crate::event::{Event, PortCall};
use crate::fault::FaultKind;
use crate::topology::{Link, Peer, Server};
use crate::trace::Entry;

/// How long after a fault lookups may fail. The manual promises that a node serves again within 5 s.
pub(super) const RECOVERY_TIME: Duration = Duration::from_secs(5);

/// A dependency of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dependency {
    /// Keys, credits, people and opt-outs: the disk of a node on SQLite, and PostgreSQL.
    Accounts,
    /// The balance of the clients' workspace.
    Balance,
    /// The counters of the burst limit in Redis.
    Windows,
    /// The vendor.
    Vendor,
    /// The clock of the node.
    Clock,
}

impl Dependency {
    /// Returns the port call that uses the connection of the node, if one that was lost unnoticed fails the
    /// first lookup that uses it.
    pub(super) fn call(self) -> Option<PortCall> {
        match self {
            Self::Windows => Some(PortCall::CountRequest),
            Self::Vendor => Some(PortCall::Resolve),
            Self::Accounts | Self::Balance | Self::Clock => None,
        }
    }
}

/// The faults of a run.
#[derive(Debug, Default)]
pub(super) struct Causes(Vec<Cause>);

/// A fault of a dependency.
#[derive(Debug)]
struct Cause {
    dependency: Dependency,
    /// The node that it affects, or `None` for all.
    node: Option<usize>,
    from: Duration,
    /// `None` until it ends.
    until: Option<Duration>,
    fault: String,
}

impl Causes {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let mut causes = Self::default();
        for Entry { at, event } in entries {
            match event {
                Event::FaultStarted(kind) => {
                    let fault = kind.to_string();
                    causes.0.extend(affected(kind).map(|(dependency, node)| Cause {
                        dependency,
                        node,
                        from: *at,
                        until: None,
                        fault,
                    }));
                }
                Event::FaultEnded(kind) => {
                    let fault = kind.to_string();
                    let is_it = |cause: &&mut Cause| cause.until.is_none() && cause.fault == fault;
                    if let Some(cause) = causes.0.iter_mut().find(is_it) {
                        cause.until = Some(*at);
                    }
                }
                _ => {}
            }
        }
        causes
    }

    /// Returns when the last fault of `dependency` of `node` that began before `until` ended, or `until` if it has not.
    pub(super) fn last_end(&self, dependency: Dependency, node: usize, until: Duration) -> Option<Duration> {
        let is_its = |cause: &&Cause| {
            let affects = cause.node.is_none_or(|affected| affected == node);
            cause.dependency == dependency && affects && cause.from <= until
        };
        self.0.iter().filter(is_its).map(|cause| cause.until.unwrap_or(until)).max()
    }

    /// Returns whether `dependency` of `node` failed at some moment from `from` to `until`.
    pub(super) fn has(&self, dependency: Dependency, node: usize, from: Duration, until: Duration) -> bool {
        self.0.iter().any(|cause| {
            cause.dependency == dependency
                && cause.node.is_none_or(|affected| affected == node)
                && cause.from <= until
                && cause.until.is_none_or(|ended| ended >= from)
        })
    }
}

/// Returns what a fault affects, and the node whose lookups it affects unless it affects those of all nodes.
fn affected(kind: &FaultKind) -> Option<(Dependency, Option<usize>)> {
    match kind {
        FaultKind::Partition(link)
        | FaultKind::OneWayPartition(link, _)
        | FaultKind::Buffering(link)
        | FaultKind::Latency(link, _)
        | FaultKind::MessageLoss(link, _) => peer(*link).map(|dependency| (dependency, Some(link.node))),
        FaultKind::Disk(node, _) => Some((Dependency::Accounts, Some(*node))),
        FaultKind::Vendor(..) => Some((Dependency::Vendor, None)),
        // Lookups do not wait for the usage.
        FaultKind::LockedTable(Postgres::USAGE) => None,
        FaultKind::LockedWorkspace => Some((Dependency::Balance, None)),
        FaultKind::ServerCrash(Server::Redis) => Some((Dependency::Windows, None)),
        FaultKind::ServerCrash(Server::Postgres)
        | FaultKind::Standby
        | FaultKind::FailedCommit { .. }
        | FaultKind::StandbyAway
        | FaultKind::TerminatedSessions
        | FaultKind::CanceledStatements
        | FaultKind::Promotion
        | FaultKind::ReadOnly
        | FaultKind::LockedTable(_)
        | FaultKind::NoConnections
        | FaultKind::LateStatements(_) => Some((Dependency::Accounts, None)),
        FaultKind::WrongClock(node, _) => Some((Dependency::Clock, Some(*node))),
        FaultKind::NodeCrash(_)
        | FaultKind::CrashDuringSpend(_)
        | FaultKind::Shutdown(_)
        | FaultKind::Reload(_) => None,
    }
}

fn peer(link: Link) -> Option<Dependency> {
    match link.peer {
        Peer::Client(_) => None,
        Peer::Vendor => Some(Dependency::Vendor),
        Peer::Server(Server::Redis) => Some(Dependency::Windows),
        Peer::Server(Server::Postgres) => Some(Dependency::Accounts),
    }
}
