//! Groups the trace by lookup.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_lib::credit::{Balance, Settlement};
use enrich_lib::model::{LookupId, WorkspaceId};

use crate::event::{Answer, Deed, Event, Logged, Question};
use crate::trace::Entry;
use crate::trouble::Fault;

/// The events of one lookup.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// The lookup's node.
    pub node: usize,
    /// The host's port calls and their results, in order.
    pub talk: Vec<Talk>,
    /// The faults that affected its settlement, one per affected attempt.
    pub spoiled: Vec<Fault>,
    /// The operations of the credit store, with their times.
    pub deeds: Vec<(Duration, Deed)>,
    /// The statuses in the host's log lines for the end of the lookup. Exactly one unless there is a bug or a crash.
    pub ends: Vec<u16>,
    /// True if the node crashed before the lookup ended.
    pub is_cut_off: bool,
    /// True if the node crashed at any time after the lookup began.
    pub node_crashed: bool,
    /// The credits of its committed spend at the end of the run, if the stores are on servers.
    pub stands: Option<i64>,
}

/// A port call or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// The host called a port.
    Asks(Question),
    /// The call returned.
    Told(Answer),
}

impl Story {
    /// Returns whether the lookup has ended.
    pub fn is_over(&self) -> bool {
        self.is_cut_off || !self.ends.is_empty()
    }

    /// Returns whether the host made this call.
    pub fn asked(&self, question: Question) -> bool {
        self.talk.contains(&Talk::Asks(question))
    }

    /// Returns whether the store spent credits for the lookup.
    pub fn is_spent(&self) -> bool {
        self.deeds.iter().any(|(_, deed)| matches!(deed, Deed::Settled(_, Settlement::Spend(_))))
    }
}

/// Returns all lookups of a run, in the order of their ids.
pub(crate) fn stories(entries: &[Entry]) -> BTreeMap<LookupId, Story> {
    let mut stories = BTreeMap::<LookupId, Story>::new();
    for Entry { at, event } in entries {
        match event {
            Event::Arrived(node, lookup) => story(&mut stories, lookup).node = *node,
            Event::Asks(lookup, question) => story(&mut stories, lookup).talk.push(Talk::Asks(*question)),
            Event::Told(lookup, answer) => story(&mut stories, lookup).talk.push(Talk::Told(*answer)),
            Event::Spoiled(lookup, fault) => story(&mut stories, lookup).spoiled.push(*fault),
            Event::Did(lookup, deed) => story(&mut stories, lookup).deeds.push((*at, deed.clone())),
            Event::Logged(Logged { end: Some((lookup, status)), .. }) => {
                story(&mut stories, lookup).ends.push(*status);
            }
            Event::Crashed(node) => {
                for story in stories.values_mut().filter(|story| story.node == *node) {
                    story.is_cut_off |= !story.is_over();
                    story.node_crashed = true;
                }
            }
            Event::Stand(spends) => {
                for (lookup, credits) in spends {
                    story(&mut stories, lookup).stands = Some(*credits);
                }
            }
            _ => {}
        }
    }
    stories
}

fn story<'s>(stories: &'s mut BTreeMap<LookupId, Story>, lookup: &LookupId) -> &'s mut Story {
    stories.entry(*lookup).or_default()
}

/// Returns the latest totals of each workspace.
pub(crate) fn last_totals(entries: &[Entry]) -> BTreeMap<WorkspaceId, Balance> {
    let totals = entries.iter().filter_map(|entry| match &entry.event {
        Event::Totals(workspace, _, balance) => Some((workspace.clone(), *balance)),
        Event::Shared(workspace, shared) => Some((workspace.clone(), shared.balance())),
        _ => None,
    });
    totals.collect()
}
