//! Invariant 10.

use std::collections::BTreeMap;

use enrich_store::usage::BILLED;

use super::ensure::ensure;
use crate::event::Event;
use crate::fault::FaultKind;
use crate::lookup_history::{LookupHistory, lookup_histories};
use crate::topology::{Peer, Server};
use crate::trace::Entry;

/// Checks the usage at the end of the run: the billed lookups are exactly the committed spends. Every other
/// lookup of a known workspace is in the usage once, except that a crash may lose the last ones. In
/// PostgreSQL, so may a fault between a node and it: a statement whose reply is lost is not repeated.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let mut counted = BTreeMap::<&str, u64>::new();
    let mut has_usage = false;
    let mut committed = 0;
    let (mut may_lack, mut is_shared) = (false, false);
    for entry in entries {
        match &entry.event {
            Event::Usage(_, outcomes) => {
                has_usage = true;
                for (outcome, lookups) in outcomes {
                    *counted.entry(outcome.as_str()).or_default() += lookups;
                }
            }
            Event::CommittedSpends(spends) => committed = spends.len() as u64,
            Event::NodeStarted { is_alone, .. } => is_shared = !is_alone,
            Event::NodeCrashed(_) => may_lack = true,
            Event::FaultStarted(fault) => may_lack |= is_shared && may_lose_replies(fault),
            _ => {}
        }
    }
    if !has_usage {
        return Ok(());
    }
    let billed = counted.remove(BILLED).unwrap_or_default();
    ensure(billed == committed, || format!("{billed} billed lookups and {committed} spends"))?;
    let free = counted.values().sum::<u64>();
    let histories = lookup_histories(entries);
    let is_free = |history: &LookupHistory, status: u16| match status {
        200 => history.paid_by().is_some() || history.is_test,
        status => status != 401,
    };
    let ended = histories.values().filter(|history| {
        history.has_key && history.logged_statuses.iter().any(|status| is_free(history, *status))
    });
    let ended = ended.count() as u64;
    ensure(free == ended || may_lack && free < ended, || {
        format!("{ended} free lookups have ended, and the usage has {counted:?}")
    })
}

/// Returns whether nodes may not learn the outcome of a statement of PostgreSQL.
fn may_lose_replies(fault: &FaultKind) -> bool {
    match fault {
        FaultKind::Partition(link)
        | FaultKind::OneWayPartition(link, _)
        | FaultKind::Buffering(link)
        | FaultKind::Latency(link, _)
        | FaultKind::MessageLoss(link, _) => link.peer == Peer::Server(Server::Postgres),
        FaultKind::ServerCrash(server) => *server == Server::Postgres,
        FaultKind::Vendor(..)
        | FaultKind::Reload(_)
        | FaultKind::WrongClock(..)
        | FaultKind::Shutdown(_)
        | FaultKind::ReadOnly
        | FaultKind::LockedTable(_)
        | FaultKind::LockedWorkspace => false,
        _ => true,
    }
}
