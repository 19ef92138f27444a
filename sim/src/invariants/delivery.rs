//! Invariant 9.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ensure::ensure;
use crate::client::TIMED_OUT;
use crate::event::{Event, SentRequest};
use crate::lookup_history::{LookupHistory, lookup_histories};
use crate::topology::{client_name, node_name};
use crate::trace::Entry;

/// How long a reply travels to its client without faults.
const TRAVEL_TIME: Duration = Duration::from_millis(200);

/// Checks that each client receives a reply, in particular from a node that is stopping, unless it stopped waiting or
/// the network or the node failed meanwhile. A node that stops may close a connection before it has read the request, and
/// so may any node if the connection is used again.
///
/// A lookup and its request are related by the email, which only lookups that called the resolver have.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let histories = lookup_histories(entries);
    let (lost, shared) = lost_replies(entries);
    for (sent, failed_at) in lost {
        let is_its = |history: &&LookupHistory| {
            history.email.as_deref() == Some(sent.email.as_str()) && history.node == sent.node
        };
        let history = histories.values().find(is_its).filter(|_| !shared.contains(sent.email.as_str()));
        let has_ended = history.and_then(|history| history.ended_at).is_some_and(|at| at <= failed_at);
        let sent_at = sent_at(entries, sent.number);
        let is_excused = has_fault(entries, sent, sent_at, failed_at)
            || !has_ended && (sent.reuses_connection || was_closed(entries, sent, sent_at, failed_at));
        ensure(is_excused, || {
            format!(
                "request {} was sent at {sent_at:?} and failed at {failed_at:?}: {history:?}",
                sent.number
            )
        })?;
    }
    Ok(())
}

/// Returns the requests that failed although their clients still waited, and when they failed, and the emails of
/// several requests.
fn lost_replies(entries: &[Entry]) -> (Vec<(&SentRequest, Duration)>, BTreeSet<&str>) {
    let mut requests = BTreeMap::new();
    let (mut emails, mut shared, mut lost) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for entry in entries {
        match &entry.event {
            Event::RequestSent(sent) => {
                if !emails.insert(sent.email.as_str()) {
                    shared.insert(sent.email.as_str());
                }
                requests.insert(sent.number, sent);
            }
            Event::RequestFailed(number, reason) if reason != TIMED_OUT => {
                lost.extend(requests.get(number).map(|sent| (*sent, entry.at)));
            }
            _ => {}
        }
    }
    (lost, shared)
}

/// Returns whether the node was stopping, stopped or starting while a request was in flight.
fn was_closed(entries: &[Entry], sent: &SentRequest, sent_at: Duration, failed_at: Duration) -> bool {
    let (mut is_starting, mut is_open, mut has_been_closed) = (false, false, false);
    for entry in entries.iter().take_while(|entry| entry.at <= failed_at) {
        has_been_closed |= !is_open && entry.at >= sent_at;
        match entry.event {
            Event::NodeStarted { node, .. } if node == sent.node => is_starting = true,
            // It also loads sources again while it stops.
            Event::SourcesLoaded(node, _) if node == sent.node && is_starting => is_open = true,
            Event::NodeStopping(node) | Event::NodeFailed(node, _) | Event::NodeCrashed(node)
                if node == sent.node =>
            {
                (is_starting, is_open) = (false, false);
            }
            _ => {}
        }
    }
    !is_open || has_been_closed
}

/// Returns whether a fault between the client and the node, or of the node, was active while the reply travelled.
fn has_fault(entries: &[Entry], sent: &SentRequest, sent_at: Duration, failed_at: Duration) -> bool {
    // Several may be the same.
    let mut active = Vec::new();
    let (client, node) = (sent.client.map(client_name), node_name(sent.node));
    let concerns = |fault: &str| {
        client.as_ref().is_some_and(|client| fault.contains(&format!("{client} <-> {node} ")))
            || fault.starts_with(&format!("{node} is down"))
    };
    let mut has_failed = false;
    for entry in entries.iter().take_while(|entry| entry.at <= failed_at + TRAVEL_TIME) {
        match &entry.event {
            Event::FaultStarted(fault) => {
                let fault = fault.to_string();
                if concerns(&fault) {
                    active.push(fault);
                }
            }
            Event::FaultEnded(fault) => {
                let ended = active.iter().position(|active| *active == fault.to_string());
                has_failed |= ended.map(|at| active.swap_remove(at)).is_some() && entry.at >= sent_at;
            }
            Event::NodeCrashed(crashed) => has_failed |= *crashed == sent.node && entry.at >= sent_at,
            _ => {}
        }
    }
    has_failed || !active.is_empty()
}

fn sent_at(entries: &[Entry], number: usize) -> Duration {
    let is_it = |event: &Event| matches!(event, Event::RequestSent(sent) if sent.number == number);
    entries.iter().find(|entry| is_it(&entry.event)).map_or(Duration::ZERO, |entry| entry.at)
}
