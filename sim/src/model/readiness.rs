//! The check that a node is ready whenever it can serve, and is not ready while its database is away.

use std::collections::BTreeMap;
use std::time::Duration;

use super::causes::{Causes, Dependency, RECOVERY_TIME};
use crate::event::Event;
use crate::fault::FaultKind;
use crate::node::OBSERVATION_INTERVAL;
use crate::topology::{Peer, Server};
use crate::trace::Entry;

/// How long after the start of a fault a node may report that it is ready: it waits for 3 s, and for the timeout of
/// a statement that it sends at least every second.
const NOTICE_TIME: Duration = Duration::from_secs(6);

/// Checks that while a node is not ready, it has a fault of its database, at most [`RECOVERY_TIME`] before, and that a
/// node without its database for [`NOTICE_TIME`] is not ready.
pub(super) fn check(entries: &[Entry], causes: &Causes) -> Result<(), String> {
    let (mut nodes, mut since) = (BTreeMap::<usize, (Duration, bool)>::new(), BTreeMap::new());
    for entry in entries {
        let Entry { at, event } = entry;
        let is_possible = match event {
            // At the end of its start, and at each reload.
            Event::SourcesLoaded(node, _) => {
                nodes.entry(*node).or_insert((*at, true));
                true
            }
            Event::NodeCrashed(node) | Event::NodeStopping(node) => {
                nodes.remove(node);
                true
            }
            Event::Ready(node, is_ready) => {
                if let Some((_, is)) = nodes.get_mut(node) {
                    *is = *is_ready;
                }
                true
            }
            Event::FaultStarted(fault) => {
                since.insert(fault.to_string(), *at);
                true
            }
            Event::FaultEnded(fault) => {
                let since = since.remove(&fault.to_string()).unwrap_or(*at);
                let notices = |node, started_at| {
                    started_at < since && *at - since >= NOTICE_TIME && separates(fault, node)
                };
                !nodes.iter().any(|(node, (started_at, is_ready))| *is_ready && notices(*node, *started_at))
            }
            _ => true,
        };
        let since = at.saturating_sub(RECOVERY_TIME + OBSERVATION_INTERVAL);
        let has_cause = |node| causes.has(Dependency::Accounts, node, since, *at);
        let is_possible =
            is_possible && nodes.iter().all(|(node, (_, is_ready))| *is_ready || has_cause(*node));
        if !is_possible {
            return Err(format!("not the readiness of a node with these faults: {entry}, {nodes:?}"));
        }
    }
    Ok(())
}

/// Returns whether a fault cuts all connections between a node and PostgreSQL.
fn separates(fault: &FaultKind, node: usize) -> bool {
    match fault {
        FaultKind::Partition(link) => link.node == node && link.peer == Peer::Server(Server::Postgres),
        FaultKind::ServerCrash(server) => *server == Server::Postgres,
        _ => false,
    }
}
