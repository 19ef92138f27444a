//! Invariant 3.

use std::collections::{BTreeMap, BTreeSet};

use enrich_lib::credit::Holding;

use super::ensure;
use crate::event::{Answer, Event, Question};
use crate::story::{Story, Talk, stories};
use crate::trace::Entry;

/// "When the rate-limit state cannot be verified, the request is not executed and status 503 is returned": no credits are
/// held and nobody is looked for before a count within the limit is known; and nobody is looked for before the credits
/// are held.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    for (lookup, story) in stories(entries) {
        let is_refused = story.ends.iter().any(|status| [401, 429, 503].contains(status));
        let is_executed =
            story.asked(Question::Hold) || story.asked(Question::Person) || !story.deeds.is_empty();
        ensure(!(is_refused && is_executed), || format!("{lookup} was refused and executed: {story:?}"))?;
        ensure(is_in_order(&story), || format!("{lookup} went on unverified: {story:?}"))?;
    }
    never_over_the_limit(entries)?;
    nobody_refused_is_sought(entries)
}

/// Never more than the limit are admitted in one window, whichever nodes they ask and whatever those take the time for;
/// and no two requests are told the same count in it, or one of them was not verified. A window that is forgotten is
/// counted anew.
///
/// A window is named by its end: windows of two workspaces end at different times.
fn never_over_the_limit(entries: &[Entry]) -> Result<(), String> {
    let mut told = BTreeSet::new();
    let mut admitted = BTreeMap::<_, u32>::new();
    for entry in entries {
        match &entry.event {
            Event::Started { forgets: true, .. } => {
                told.clear();
                admitted.clear();
            }
            Event::Told(_, Answer::Count(count, closes_at, limit)) => {
                let admitted = admitted.entry(*closes_at).or_default();
                *admitted += u32::from(*count <= u64::from(*limit));
                ensure(*admitted <= *limit, || format!("over the limit: {entry}"))?;
                ensure(told.insert((*closes_at, *count)), || format!("told twice: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The vendor's word for it: it was never asked for the person of a request that was refused.
fn nobody_refused_is_sought(entries: &[Entry]) -> Result<(), String> {
    let sought: BTreeSet<_> = entries.iter().filter_map(|entry| sought(&entry.event)).collect();
    let mut emails = BTreeMap::new();
    for entry in entries {
        match &entry.event {
            Event::Sent(sent) => drop(emails.insert(sent.number, sent.email.as_str())),
            Event::Received(number, reply) if [400, 401, 402, 429, 503].contains(&reply.status) => {
                let is_sought = emails.get(number).is_some_and(|email| sought.contains(email));
                ensure(!is_sought, || format!("refused, and looked for: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
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
            is_funded = *holding == Holding::Granted;
            true
        }
        Talk::Asks(Question::Hold) => is_admitted,
        Talk::Asks(Question::Person | Question::Settle(_)) => is_funded,
        _ => true,
    })
}
