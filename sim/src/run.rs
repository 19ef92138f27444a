//! A run that is over: what it was, what happened, and whether the invariants held.

use std::collections::BTreeMap;
use std::thread;

use enrich_lib::credit::Balance;

use crate::event::Event;
use crate::invariants;
use crate::plan::{Plan, tenant};
use crate::story::{Story, last_totals, stories};
use crate::trace::Entry;

/// How much of the trace a failure shows.
const LINES_SHOWN: usize = 30;

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it was a run of.
    pub plan: Plan,
    /// Everything that happened.
    pub trace: Vec<Entry>,
    /// Why the simulation itself did not come to its end.
    failure: Option<String>,
}

impl Run {
    pub(crate) fn new(plan: Plan, trace: Vec<Entry>, failure: Option<String>) -> Self {
        Self { plan, trace, failure }
    }

    /// Panics with a report unless all invariants hold.
    pub fn check(self) -> Self {
        let broken = self.broken();
        assert!(broken.is_empty(), "{}", self.report(&broken));
        self
    }

    /// What is wrong with the run: one text for each broken invariant.
    pub fn broken(&self) -> Vec<String> {
        let checks = invariants::ALL.iter().filter_map(|(sentence, check)| {
            check(&self.trace).err().map(|how| format!("not true: {sentence}\n    {how}"))
        });
        self.failure.iter().map(|why| format!("the run did not end: {why}")).chain(checks).collect()
    }

    /// The statuses that clients received, by request; `None` without a reply. The prober's are the last.
    pub fn statuses(&self) -> Vec<Option<u16>> {
        let mut statuses = BTreeMap::new();
        for entry in &self.trace {
            match &entry.event {
                Event::Sent(sent) => drop(statuses.insert(sent.number, None)),
                Event::Received(number, reply) => drop(statuses.insert(*number, Some(reply.status))),
                _ => {}
            }
        }
        statuses.into_values().collect()
    }

    /// The lookups, in the order of their ids.
    pub fn stories(&self) -> Vec<Story> {
        stories(&self.trace).into_values().collect()
    }

    /// The workspace's credits in the end.
    pub fn balance(&self) -> Balance {
        last_totals(&self.trace).remove(&tenant().0).unwrap_or_default()
    }

    /// The trace as lines.
    pub fn lines(&self) -> Vec<String> {
        self.trace.iter().map(ToString::to_string).collect()
    }

    /// One number for the whole trace (FNV-1a).
    pub fn hash(&self) -> u64 {
        let bytes = self.lines().into_iter().flat_map(|line| (line + "\n").into_bytes());
        bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// What a failure shows: the seed, what is broken, what was drawn, the end of the trace, and how to see it again.
    fn report(&self, broken: &[String]) -> String {
        let seed = self.plan.seed;
        let troubles: Vec<_> = self.plan.troubles.iter().map(ToString::to_string).collect();
        let clocks: Vec<_> = self.plan.clocks.iter().map(ToString::to_string).collect();
        let lines = self.lines();
        let tail = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
        // A test's thread has the test's name.
        let test = thread::current().name().unwrap_or_default().to_owned();
        [
            format!("seed {seed}"),
            broken.join("\n"),
            format!("its nodes' clocks: {}", clocks.join(" · ")),
            format!("its troubles:\n    {}", troubles.join("\n    ")),
            format!("the end of its trace, {} of {} lines:\n{}", tail.len(), lines.len(), tail.join("\n")),
            format!("to see it again:\n    SIM_SEED={seed} cargo test -p enrich-sim --features sim {test}"),
        ]
        .join("\n\n")
    }
}
