//! Invariant 10.

use std::collections::BTreeMap;

use enrich_store::usage::BILLED;

use super::ensure::ensure;
use crate::event::Event;
use crate::fault::FaultKind;
use crate::lookup_history::{self, lookup_histories};
use crate::topology::{Peer, Server};
use crate::trace::Entry;
use crate::workspaces::workspace_of;

/// Checks the usage of each key at the end of the run: the billed lookups are exactly the committed spends. Every
/// other lookup of a known workspace is in the usage once, with its outcome, except that a crash may lose the last
/// ones. In PostgreSQL, so may a fault between a node and it: a statement whose reply is lost is not repeated.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let (mut counted, mut expected) = (BTreeMap::new(), BTreeMap::new());
    let (mut may_lack, mut is_shared) = (false, false);
    for entry in entries {
        match &entry.event {
            Event::Usage(workspace, rows) => {
                let rows = rows.iter();
                counted.extend(
                    rows.map(|((key, outcome), count)| ((workspace.clone(), *key, outcome.clone()), *count)),
                );
            }
            Event::NodeStarted { is_alone, .. } => is_shared = !is_alone,
            Event::NodeCrashed(_) => may_lack = true,
            Event::FaultStarted(fault) => may_lack |= is_shared && may_lose_replies(fault),
            _ => {}
        }
    }
    if !entries.iter().any(|entry| matches!(entry.event, Event::Usage(..))) {
        return Ok(());
    }
    let price = lookup_history::price(entries);
    for history in lookup_histories(entries).values() {
        let Some(key) = history.key else { continue };
        let id = key.api_key().digest().key_id().number();
        let mut expect = |id, outcome: &str| {
            *expected.entry((workspace_of(key), id, outcome.to_owned())).or_insert(0) += 1;
        };
        if history.has_spent() {
            expect(if is_shared { 0 } else { id }, BILLED);
        }
        let has_price = history.cost(price) > 0 && history.paid_by().is_none();
        for status in &history.logged_statuses {
            if !has_price || ![200, 404].contains(status) {
                expect(id, history.outcome.as_deref().unwrap_or_default());
            }
        }
    }
    for row @ (_, _, outcome) in counted.keys().chain(expected.keys()) {
        let (counted, expected) =
            [&counted, &expected].map(|of| of.get(row).copied().unwrap_or_default()).into();
        let may_lack = may_lack && outcome != BILLED;
        ensure(counted == expected || may_lack && counted < expected, || {
            format!("{expected} lookups have ended with {row:?}, and the usage has {counted}")
        })?;
    }
    Ok(())
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
