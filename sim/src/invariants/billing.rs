//! Invariant 6.

use std::collections::BTreeSet;

use enrich_lib::credit::Settlement;
use enrich_lib::model::LookupId;

use super::ensure;
use crate::event::{Answer, Event, Question, Reply, parse_lookup_id};
use crate::story::{Story, Talk, stories};
use crate::trace::Entry;
use crate::trouble::Fault;

/// Checks that a 200 is sent if and only if its lookup is spent. Repeated spends of a lookup change nothing, which the
/// totals show.
///
/// A spend may lack a 200 in only two cases. First, the node crashed in between. Second, the store did its work, but the
/// faulty wrapper around it lost or delayed the responses, so the host replied 500 to avoid giving the result away for free.
/// If the host gives up on the store itself, the store must void the spend; this case is not excused.
///
/// With shared accounts, the accounts at the end of the run determine which spends are committed; responses to nodes are
/// ignored. There is no wrapper, so a spend may lack a 200 only if the node crashed: before it replied, or after it replied
/// 500 and before PostgreSQL received the void.
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

/// Returns whether the lookup requested a spend if and only if its resolver returned a profile. The profile's source does
/// not matter: the vendor, a concurrent lookup of the same person, or the cache.
fn is_settled_as_told(story: &Story) -> bool {
    let is_spend = |talk: &Talk| matches!(talk, Talk::Asks(Question::Settle(Settlement::Spend(_))));
    story.talk.iter().any(is_spend) == story.talk.contains(&Talk::Told(Answer::Person(true)))
}

fn is_answer_lost(story: &Story) -> bool {
    let is_lost = |fault: &Fault| matches!(fault, Fault::AnswerLost | Fault::Late(_));
    is_given_up(story) && story.spoiled.iter().any(is_lost)
}

/// Returns whether the host requested the spend, received a failure and replied 500.
fn is_given_up(story: &Story) -> bool {
    let asked = |talk: &Talk| matches!(talk, Talk::Asks(Question::Settle(Settlement::Spend(_))));
    let mut answers = story.talk.iter().skip_while(|talk| !asked(talk)).skip(1);
    story.ends == [500] && answers.next() == Some(&Talk::Told(Answer::Failed))
}

fn lookup_of(reply: &Reply) -> Option<LookupId> {
    let body: serde_json::Value = serde_json::from_str(&reply.body).ok()?;
    parse_lookup_id(body["lookup_id"].as_str()?)
}
