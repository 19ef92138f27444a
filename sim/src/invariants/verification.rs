//! Invariant 3.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use enrich_lib::credit::HoldOutcome;

use super::ensure;
use crate::event::{Answer, Event, Question, Sent};
use crate::plan::Wish;
use crate::story::{Story, Talk, stories};
use crate::trace::Entry;

/// How long a node may accept a key after its revocation.
const REVOKED_WITHIN: Duration = Duration::from_secs(1);

/// "When the rate-limit state cannot be verified, the request is not executed and status 503 is returned".
///
/// Checks that a lookup holds no credits and calls no resolver before it has a verified count within the limit, and that it
/// calls no resolver before its credits are held.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    for (lookup, story) in stories(entries) {
        let is_refused = story.ends.iter().any(|status| [401, 429, 503].contains(status));
        let is_executed =
            story.asked(Question::Hold) || story.asked(Question::Person) || !story.deeds.is_empty();
        ensure(!(is_refused && is_executed), || format!("{lookup} was refused and executed: {story:?}"))?;
        ensure(is_in_order(&story), || format!("{lookup} went on unverified: {story:?}"))?;
    }
    never_over_the_limit(entries)?;
    nobody_is_served_by_a_revoked_key(entries)?;
    nobody_refused_is_sought(entries)?;
    nobody_who_opted_out_is_sought(entries)
}

/// Checks that at most `limit` requests are admitted per window, with any nodes and clocks. No two requests in a window may
/// receive the same count, otherwise one of the counts was not verified. A window that the store drops starts from 0 again.
///
/// Each time Redis loses its memory, its windows start again: one more limit may be admitted, and each count may be returned
/// once more. Responses from before the loss may still arrive afterwards, so the check raises its bounds and does not reset
/// its counters.
///
/// The end of a window identifies it: windows of different workspaces end at different times.
fn never_over_the_limit(entries: &[Entry]) -> Result<(), String> {
    let mut told = BTreeMap::<_, u32>::new();
    let mut admitted = BTreeMap::<_, u32>::new();
    let mut beginnings = 1;
    for entry in entries {
        match &entry.event {
            Event::Started { forgets: true, .. } => {
                told.clear();
                admitted.clear();
            }
            Event::Forgot => beginnings += 1,
            Event::Told(_, Answer::Count(count, closes_at, limit)) => {
                let admitted = admitted.entry(*closes_at).or_default();
                *admitted += u32::from(*count <= u64::from(*limit));
                ensure(*admitted <= *limit * beginnings, || format!("over the limit: {entry}"))?;
                let told = told.entry((*closes_at, *count)).or_default();
                *told += 1;
                ensure(*told <= beginnings, || format!("told twice: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that no node accepts a revoked key one second after its revocation. Only clients use that key; the prober has its
/// own.
fn nobody_is_served_by_a_revoked_key(entries: &[Entry]) -> Result<(), String> {
    let revoked = entries.iter().find(|entry| matches!(entry.event, Event::Revoked)).map(|entry| entry.at);
    let healed = entries.iter().find(|entry| matches!(entry.event, Event::Healed)).map(|entry| entry.at);
    let (Some(revoked), Some(healed)) = (revoked, healed) else { return Ok(()) };
    for entry in entries {
        let is_taken = matches!(entry.event, Event::Told(_, Answer::Key(true)));
        let is_late = entry.at > revoked + REVOKED_WITHIN && entry.at < healed;
        ensure(!(is_taken && is_late), || format!("served by a revoked key: {entry}"))?;
    }
    Ok(())
}

/// Checks that the vendor never received a request for a person whose requests were all refused.
fn nobody_refused_is_sought(entries: &[Entry]) -> Result<(), String> {
    let sought: BTreeSet<_> = entries.iter().filter_map(|entry| sought(&entry.event)).collect();
    let refused = |event: &Event| match event {
        Event::Received(number, reply) if [400, 401, 402, 429, 503].contains(&reply.status) => Some(*number),
        _ => None,
    };
    let refused: BTreeSet<_> = entries.iter().filter_map(|entry| refused(&entry.event)).collect();
    let sent = || entries.iter().filter_map(|entry| sent(&entry.event));
    let wanted: BTreeSet<_> =
        sent().filter(|sent| !refused.contains(&sent.number)).map(|sent| sent.email.as_str()).collect();
    for sent in sent() {
        let email = sent.email.as_str();
        ensure(wanted.contains(email) || !sought.contains(email), || {
            format!("refused, and looked for: {}", Event::Sent(sent.clone()))
        })?;
    }
    Ok(())
}

/// Checks that the vendor never received a request for a person who opted out.
fn nobody_who_opted_out_is_sought(entries: &[Entry]) -> Result<(), String> {
    let sent = entries.iter().filter_map(|entry| sent(&entry.event));
    let opted_out: BTreeSet<_> =
        sent.filter(|sent| sent.wish == Wish::OptedOut).map(|sent| sent.email.as_str()).collect();
    for entry in entries {
        let is_told = sought(&entry.event).is_some_and(|email| opted_out.contains(email));
        ensure(!is_told, || format!("opted out, and looked for: {entry}"))?;
    }
    Ok(())
}

fn sent(event: &Event) -> Option<&Sent> {
    if let Event::Sent(sent) = event { Some(sent) } else { None }
}

fn sought(event: &Event) -> Option<&str> {
    if let Event::Sought(email, _) = event { Some(email) } else { None }
}

fn is_in_order(story: &Story) -> bool {
    let (mut is_admitted, mut is_funded) = (false, false);
    story.talk.iter().all(|talk| match talk {
        Talk::Told(Answer::Count(count, _, limit)) => {
            is_admitted = (1..=u64::from(*limit)).contains(count);
            true
        }
        Talk::Told(Answer::Hold(holding)) => {
            is_funded = *holding == HoldOutcome::Granted;
            true
        }
        Talk::Asks(Question::Hold) => is_admitted,
        Talk::Asks(Question::Person | Question::Settle(_)) => is_funded,
        _ => true,
    })
}
