//! Invariant 6.

use std::collections::BTreeSet;

use enrich_lib::model::LookupId;

use super::ensure::ensure;
use crate::event::{Event, LogLine, PortResult, Reply, parse_lookup_id};
use crate::lookup_history::{PortEvent, lookup_histories};
use crate::trace::Entry;

/// Checks that a 200 is sent if and only if its lookup is spent, and only then. Repeated spends of a lookup
/// have no further effect, which the balances show.
///
/// A spend lacks a 200 only if the node crashed before the lookup ended. In particular, no lookup with
/// another status is spent, however late the store responded. The database at the end of the run determines
/// which spends are committed.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let histories = lookup_histories(entries);
    for (lookup, history) in &histories {
        let has_found = history.port_events.contains(&PortEvent::Returned(PortResult::ProfileFound(true)));
        ensure(history.has_requested_spend() == has_found, || {
            format!("{lookup} must request a spend if and only if a profile was found: {history:?}")
        })?;
        let is_replied = history.logged_statuses.contains(&200);
        let is_spent = history.committed_credits == Some(1);
        ensure(!is_replied || is_spent, || format!("{lookup} is not charged for its 200: {history:?}"))?;
        ensure(!is_spent || is_replied || history.is_interrupted, || {
            format!("{lookup} is charged without a 200: {history:?}")
        })?;
    }
    let (mut seen, mut settled) = (BTreeSet::new(), BTreeSet::new());
    for entry in entries {
        match &entry.event {
            Event::PortReturned(lookup, PortResult::Settled) => drop(settled.insert(*lookup)),
            Event::Logged(LogLine { lookup_end: Some((lookup, 200)), .. }) => {
                ensure(settled.contains(lookup), || {
                    format!("{lookup} ended with a 200 before its spend was settled: {entry}")
                })?;
            }
            _ => {}
        }
        if let Event::ReplyReceived(_, reply) = &entry.event
            && reply.status == 200
        {
            let lookup = lookup_of(reply).filter(|lookup| seen.insert(*lookup));
            let history = lookup.and_then(|lookup| histories.get(&lookup));
            ensure(history.is_some_and(|history| history.logged_statuses == [200]), || {
                format!("no lookup ended with this 200: {entry}")
            })?;
        }
    }
    Ok(())
}

fn lookup_of(reply: &Reply) -> Option<LookupId> {
    let body: serde_json::Value = serde_json::from_str(&reply.body).ok()?;
    parse_lookup_id(body["lookup_id"].as_str()?)
}
