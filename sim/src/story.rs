//! The trace read lookup by lookup.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_lib::credit::{Balance, Settlement};
use enrich_lib::model::{LookupId, WorkspaceId};

use crate::event::{Answer, Deed, Event, Logged, Question};
use crate::trace::Entry;
use crate::trouble::Fault;

/// One lookup from its beginning to its end.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// On which node.
    pub node: usize,
    /// What the host asked and was told, in turn.
    pub talk: Vec<Talk>,
    /// What went wrong with its settlement between the host and the store, once for each attempt.
    pub spoiled: Vec<Fault>,
    /// What the store of credits did.
    pub deeds: Vec<(Duration, Deed)>,
    /// The statuses that the host said it answers: one, unless something is wrong.
    pub ends: Vec<u16>,
    /// Whether the node crashed before the end.
    pub is_cut_off: bool,
    /// Whether it crashed at any time.
    pub node_crashed: bool,
    /// The credits of its spend that stand in the end, where the stores are servers.
    pub stands: Option<i64>,
}

/// A turn of the talk between the host and its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// The host asked.
    Asks(Question),
    /// It was told.
    Told(Answer),
}

impl Story {
    /// Whether nothing more will happen to it.
    pub fn is_over(&self) -> bool {
        self.is_cut_off || !self.ends.is_empty()
    }

    /// Whether the host asked this.
    pub fn asked(&self, question: Question) -> bool {
        self.talk.contains(&Talk::Asks(question))
    }

    /// Whether the store spent credits for it.
    pub fn is_spent(&self) -> bool {
        self.deeds.iter().any(|(_, deed)| matches!(deed, Deed::Settled(_, Settlement::Spend(_))))
    }
}

/// All lookups of a run, in the order of their ids.
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

/// The latest totals of each workspace.
pub(crate) fn last_totals(entries: &[Entry]) -> BTreeMap<WorkspaceId, Balance> {
    let totals = entries.iter().filter_map(|entry| match &entry.event {
        Event::Totals(workspace, _, balance) => Some((workspace.clone(), *balance)),
        Event::Shared(workspace, shared) => Some((workspace.clone(), shared.balance())),
        _ => None,
    });
    totals.collect()
}
