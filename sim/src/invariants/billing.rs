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
///
/// Where nodes share the books, these tell in the end which spends stand: what a node was told of them, or was not, is
/// not asked. There is no wrapper either. A spend has no 200 only if the node crashed: before it could say so, or after it
/// said 500 and before PostgreSQL had heard of it that the spend is void.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    let stories = stories(entries);
    let is_shared = entries.iter().any(|entry| matches!(entry.event, Event::Stand(_)));
    for (lookup, story) in &stories {
        ensure(is_settled_as_told(story), || format!("{lookup} is not settled as it was told: {story:?}"))?;
        let is_found = story.ends.contains(&200);
        let is_spent = if is_shared { story.stands == Some(1) } else { story.is_spent() };
        ensure(!is_found || is_spent, || format!("{lookup} is given away: {story:?}"))?;
        let is_lost =
            if is_shared { story.node_crashed && is_given_up(story) } else { is_answer_lost(story) };
        let is_excused = story.is_cut_off || is_lost;
        ensure(!is_spent || is_found || is_excused, || {
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
    let is_lost = |fault: &Fault| matches!(fault, Fault::AnswerLost | Fault::Late(_));
    is_given_up(story) && story.spoiled.iter().any(is_lost)
}

/// The host asked for the spend, was told that it failed, and said 500.
fn is_given_up(story: &Story) -> bool {
    let asked = |talk: &Talk| matches!(talk, Talk::Asks(Question::Settle(Settlement::Spend(_))));
    let mut answers = story.talk.iter().skip_while(|talk| !asked(talk)).skip(1);
    story.ends == [500] && answers.next() == Some(&Talk::Told(Answer::Failed))
}

fn lookup_of(reply: &Reply) -> Option<LookupId> {
    let body: serde_json::Value = serde_json::from_str(&reply.body).ok()?;
    parse_lookup_id(body["lookup_id"].as_str()?)
}
