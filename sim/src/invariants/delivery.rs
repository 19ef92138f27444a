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

/// Checks that the client of a lookup that ended receives its reply, in particular from a node that is
/// stopping, unless the client stopped waiting or the network failed meanwhile.
///
/// A lookup and its request are related by the email, which only lookups that called the resolver have.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let histories = lookup_histories(entries);
    for (sent, failed_at) in lost_replies(entries) {
        let is_its = |history: &&LookupHistory| {
            history.email.as_deref() == Some(sent.email.as_str()) && history.node == sent.node
        };
        let ended = histories.values().find(is_its).and_then(|history| history.ended_at);
        let Some(ended_at) = ended.filter(|at| *at <= failed_at) else { continue };
        ensure(has_fault(entries, sent, failed_at), || {
            format!("the lookup of request {} ended at {ended_at:?}, and its reply was lost", sent.number)
        })?;
    }
    Ok(())
}

/// Returns the requests of persons of their own that failed although their clients still waited, and when
/// they failed.
fn lost_replies(entries: &[Entry]) -> Vec<(&SentRequest, Duration)> {
    let mut requests = BTreeMap::new();
    let mut emails = BTreeMap::<&str, u32>::new();
    let mut lost = Vec::new();
    for entry in entries {
        match &entry.event {
            Event::RequestSent(sent) => {
                *emails.entry(&sent.email).or_default() += 1;
                requests.insert(sent.number, sent);
            }
            Event::RequestFailed(number, reason) if reason != TIMED_OUT => {
                lost.extend(requests.get(number).map(|sent| (*sent, entry.at)));
            }
            _ => {}
        }
    }
    lost.retain(|(sent, _)| emails.get(sent.email.as_str()) == Some(&1));
    lost
}

/// Returns whether a fault between the client and the node, or of the node, was active while the reply
/// travelled.
fn has_fault(entries: &[Entry], sent: &SentRequest, failed_at: Duration) -> bool {
    let mut active = BTreeSet::new();
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
                    active.insert(fault);
                }
            }
            Event::FaultEnded(fault) => {
                let was_active = active.remove(&fault.to_string());
                has_failed |= was_active && entry.at >= sent_at(entries, sent.number);
            }
            Event::NodeCrashed(crashed) => {
                has_failed |= *crashed == sent.node && entry.at >= sent_at(entries, sent.number);
            }
            _ => {}
        }
    }
    has_failed || !active.is_empty()
}

fn sent_at(entries: &[Entry], number: usize) -> Duration {
    let is_it = |event: &Event| matches!(event, Event::RequestSent(sent) if sent.number == number);
    entries.iter().find(|entry| is_it(&entry.event)).map_or(Duration::ZERO, |entry| entry.at)
}
