//! Invariant 3.

use std::collections::BTreeSet;

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
    no_count_twice(entries)
}

/// No two requests are told the same count in a window, or one of them was not verified. A window that is forgotten is
/// counted anew.
fn no_count_twice(entries: &[Entry]) -> Result<(), String> {
    let mut told = BTreeSet::new();
    for entry in entries {
        match &entry.event {
            Event::Started { forgets: true, .. } => told.clear(),
            Event::Told(_, Answer::Count(count, closes_at, _)) => {
                ensure(told.insert((*closes_at, *count)), || format!("told twice: {entry}"))?;
            }
            _ => {}
        }
    }
    Ok(())
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
