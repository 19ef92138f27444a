//! Invariant 3.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_lib::credit::HoldOutcome;

use super::ensure::ensure;
use crate::clock::SKEW_MAX;
use crate::event::{Event, PortCall, PortResult, SentRequest};
use crate::lookup_history::{LookupHistory, PortEvent, lookup_histories};
use crate::request::RequestKind;
use crate::trace::Entry;

/// How long before its window opens, by the correct time, a request may be counted. The node's clock may be 5
/// s fast. Redis accepts the same lead by its own clock, which may be 5 s fast, and tolerates that it is 5 s
/// slow.
const LEAD_MAX: Duration = SKEW_MAX.saturating_mul(3);

/// "When the rate-limit state cannot be verified, the request is not executed and status 503 is returned".
///
/// Checks that a lookup is counted once, that it holds no credits and calls no resolver before it has a
/// verified count within the limit, and that it calls no resolver before its credits are held.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    for (lookup, history) in lookup_histories(entries) {
        let is_count = |event: &&PortEvent| **event == PortEvent::Called(PortCall::CountRequest);
        let counts = history.port_events.iter().filter(is_count).count();
        ensure(counts <= 1, || format!("{lookup} was counted {counts} times: {history:?}"))?;
        let is_refused = history.logged_statuses.iter().any(|status| [401, 429, 503].contains(status));
        ensure(!(is_refused && history.is_executed()), || {
            format!("{lookup} was refused and executed: {history:?}")
        })?;
        ensure(is_in_order(&history), || {
            format!("{lookup} was executed without a verified count: {history:?}")
        })?;
    }
    check_limits(entries)?;
    check_vendor_gets_no_refused_person(entries)?;
    check_vendor_gets_no_opted_out_person(entries)
}

/// Checks that at most `limit` requests are admitted per window, with any nodes and clocks, and that no node
/// that shares its windows uses one long before it opens. No two requests in a window may receive the same
/// count, otherwise one of the counts was not verified. A window that the store drops starts from 0 again.
///
/// Each time Redis loses its data, its open windows start again: one more limit may be admitted, and each count
/// may be returned once more. Responses from before the loss may still arrive afterwards, so the check raises
/// its bounds and does not reset its counters.
///
/// A node that keeps its windows in memory drops those that its clock has left, so a jump of its clock counts
/// as a loss as well.
///
/// The end of a window identifies it, and whether it is one of test keys: windows of different workspaces end at
/// different times.
fn check_limits(entries: &[Entry]) -> Result<(), String> {
    let mut windows = BTreeMap::<_, Window>::new();
    let (mut losses, mut shares_windows) = (Vec::new(), true);
    for entry in entries {
        let Entry { at, event } = entry;
        match event {
            Event::NodeStarted { is_alone: true, .. } => {
                shares_windows = false;
                windows.clear();
            }
            Event::RedisDataLost => losses.push(*at),
            Event::ClockSet(_) if !shares_windows => losses.push(*at),
            Event::PortReturned(_, PortResult::Counted { count, lead_ms, closes_at, limit, is_test, .. }) => {
                ensure(!shares_windows || u128::from(*lead_ms) <= LEAD_MAX.as_millis(), || {
                    format!("counted in a window that other nodes use later: {entry}")
                })?;
                let new = || Window { first_at: *at, admitted: 0, limit_max: 0, returned: BTreeMap::new() };
                let window = windows.entry((*closes_at, *is_test)).or_insert_with(new);
                let is_its = |lost_at: &&Duration| **lost_at + LEAD_MAX >= window.first_at;
                let starts = 1 + losses.iter().filter(is_its).count() as u32;
                window.admitted += u32::from(*count <= u64::from(*limit));
                // An operator may have lowered the limit since the others were admitted.
                window.limit_max = (*limit).max(window.limit_max);
                ensure(window.admitted <= window.limit_max * starts, || {
                    format!("admitted more than the limit: {entry}")
                })?;
                let returned = window.returned.entry(*count).or_default();
                *returned += 1;
                ensure(*returned <= starts, || format!("returned the same count twice: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The counts of a window.
struct Window {
    first_at: Duration,
    admitted: u32,
    limit_max: u32,
    returned: BTreeMap<u64, u32>,
}

/// Checks that the vendor never received a request for a person whose requests were all refused.
fn check_vendor_gets_no_refused_person(entries: &[Entry]) -> Result<(), String> {
    let requested: BTreeSet<_> = entries.iter().filter_map(|entry| vendor_email(&entry.event)).collect();
    let refused = |event: &Event| match event {
        Event::ReplyReceived(number, reply) if [400, 401, 402, 429, 503].contains(&reply.status) => {
            Some(*number)
        }
        _ => None,
    };
    let refused: BTreeSet<_> = entries.iter().filter_map(|entry| refused(&entry.event)).collect();
    let sent = || entries.iter().filter_map(|entry| sent(&entry.event));
    let admitted: BTreeSet<_> =
        sent().filter(|sent| !refused.contains(&sent.number)).map(|sent| sent.email.as_str()).collect();
    for sent in sent() {
        let email = sent.email.as_str();
        ensure(admitted.contains(email) || !requested.contains(email), || {
            format!("refused, but sent to the vendor: {}", Event::RequestSent(sent.clone()))
        })?;
    }
    Ok(())
}

/// Checks that the vendor never received a request for a person who opted out.
fn check_vendor_gets_no_opted_out_person(entries: &[Entry]) -> Result<(), String> {
    let sent = entries.iter().filter_map(|entry| sent(&entry.event));
    let opted_out: BTreeSet<_> =
        sent.filter(|sent| sent.kind == RequestKind::OptedOut).map(|sent| sent.email.as_str()).collect();
    for entry in entries {
        let is_sent = vendor_email(&entry.event).is_some_and(|email| opted_out.contains(email));
        ensure(!is_sent, || format!("opted out, but sent to the vendor: {entry}"))?;
    }
    Ok(())
}

fn sent(event: &Event) -> Option<&SentRequest> {
    if let Event::RequestSent(sent) = event { Some(sent) } else { None }
}

fn vendor_email(event: &Event) -> Option<&str> {
    if let Event::VendorCalled(email, _) = event { Some(email) } else { None }
}

fn is_in_order(history: &LookupHistory) -> bool {
    let (mut is_admitted, mut is_held) = (false, false);
    history.port_events.iter().all(|event| match event {
        PortEvent::Returned(PortResult::Counted { count, limit, .. }) => {
            is_admitted = (1..=u64::from(*limit)).contains(count);
            true
        }
        PortEvent::Returned(PortResult::Hold(outcome)) => {
            is_held = *outcome == HoldOutcome::Granted;
            true
        }
        PortEvent::Called(PortCall::Hold) => is_admitted,
        PortEvent::Called(PortCall::Resolve | PortCall::Settle(_)) => is_held,
        _ => true,
    })
}
