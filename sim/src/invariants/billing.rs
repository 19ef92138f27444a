//! Invariant 6.

use std::collections::BTreeSet;

use enrich_lib::credit::Settlement;
use enrich_lib::model::LookupId;

use super::ensure;
use crate::event::{Answer, Event, Question, Reply, parse_lookup_id};
use crate::story::{Story, Talk, stories};
use crate::trace::Entry;
use crate::trouble::Fault;

/// A 200 is sent if and only if its lookup is spent; how often a spend is asked for changes nothing, as the totals tell.
///
/// A spend has no 200 in two cases alone: the node crashed in between; or the store did its work and the faulty wrapper
/// around it lost the answers or held them back for too long, so that the host did not dare to give the result away (500).
/// A store that is given up while it works has to void its spend, and is excused by nothing.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let stories = stories(entries);
    for (lookup, story) in &stories {
        ensure(is_settled_as_told(story), || format!("{lookup} is not settled as it was told: {story:?}"))?;
        let is_found = story.ends.contains(&200);
        ensure(!is_found || story.is_spent(), || format!("{lookup} is given away: {story:?}"))?;
        let is_excused = story.is_cut_off || is_answer_lost(story);
        ensure(!story.is_spent() || is_found || is_excused, || {
            format!("{lookup} is charged for nothing: {story:?}")
        })?;
    }
    let mut seen = BTreeSet::new();
    for entry in entries {
        if let Event::Received(_, reply) = &entry.event
            && reply.status == 200
        {
            let lookup = lookup_of(reply).filter(|lookup| seen.insert(*lookup));
            let story = lookup.and_then(|lookup| stories.get(&lookup));
            ensure(story.is_some_and(|story| story.ends == [200]), || format!("nobody's 200: {entry}"))?;
        }
    }
    Ok(())
}

/// A lookup that was told of a profile asks for a spend of its own, and no other does, wherever the answer came from: the
/// vendor, another lookup that asked for the same person, or the memory.
fn is_settled_as_told(story: &Story) -> bool {
    let is_spend = |talk: &Talk| matches!(talk, Talk::Asks(Question::Settle(Settlement::Spend(_))));
    story.talk.iter().any(is_spend) == story.talk.contains(&Talk::Told(Answer::Person(true)))
}

fn is_answer_lost(story: &Story) -> bool {
    let asked = |talk: &Talk| matches!(talk, Talk::Asks(Question::Settle(Settlement::Spend(_))));
    let mut answers = story.talk.iter().skip_while(|talk| !asked(talk)).skip(1);
    let is_lost = |fault: &Fault| matches!(fault, Fault::AnswerLost | Fault::Late(_));
    story.ends == [500]
        && story.spoiled.iter().any(is_lost)
        && answers.next() == Some(&Talk::Told(Answer::Failed))
}

fn lookup_of(reply: &Reply) -> Option<LookupId> {
    let body: serde_json::Value = serde_json::from_str(&reply.body).ok()?;
    parse_lookup_id(body["lookup_id"].as_str()?)
}
