//! The result of a run: its plan, its trace, and the check of the invariants.

use std::collections::BTreeMap;
use std::env;
use std::thread;

use enrich_lib::credit::Balance;

use crate::event::Event;
use crate::invariants;
use crate::lookup_history::{LookupHistory, last_balances, lookup_histories};
use crate::plan::Plan;
use crate::trace::Entry;
use crate::workspaces::client_workspace;

/// The number of trace lines in a failure report.
const LINES_SHOWN: usize = 30;

/// A finished run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The plan of the run.
    pub plan: Plan,
    /// All events.
    pub trace: Vec<Entry>,
    /// The error that stopped the simulation early, if any.
    failure: Option<String>,
}

impl Run {
    pub(crate) fn new(plan: Plan, trace: Vec<Entry>, failure: Option<String>) -> Self {
        Self { plan, trace, failure }
    }

    /// Checks all invariants. Panics with a report if one is violated.
    pub fn check(self) -> Self {
        let violations = self.violations();
        assert!(violations.is_empty(), "{}", self.report(&violations));
        self
    }

    /// Returns one message per violated invariant.
    pub fn violations(&self) -> Vec<String> {
        let checks = invariants::ALL.iter().filter_map(|(name, check)| {
            check(&self.trace).err().map(|violation| format!("violated: {name}\n    {violation}"))
        });
        self.failure.iter().map(|error| format!("the simulation failed: {error}")).chain(checks).collect()
    }

    /// Returns the status of each reply by request, or `None` for requests without a reply. The prober's
    /// requests are last.
    pub fn statuses(&self) -> Vec<Option<u16>> {
        let mut statuses = BTreeMap::new();
        for entry in &self.trace {
            match &entry.event {
                Event::RequestSent(sent) => drop(statuses.insert(sent.number, None)),
                Event::ReplyReceived(number, reply) => drop(statuses.insert(*number, Some(reply.status))),
                _ => {}
            }
        }
        statuses.into_values().collect()
    }

    /// Returns the lookups in the order of their ids.
    pub fn lookups(&self) -> Vec<LookupHistory> {
        lookup_histories(&self.trace).into_values().collect()
    }

    /// Returns the workspace's credits at the end of the run.
    pub fn balance(&self) -> Balance {
        last_balances(&self.trace).remove(&client_workspace()).unwrap_or_default()
    }

    /// Returns the trace as text, one event per line.
    pub fn lines(&self) -> Vec<String> {
        self.trace.iter().map(ToString::to_string).collect()
    }

    /// Returns the FNV-1a hash of the trace.
    pub fn hash(&self) -> u64 {
        let bytes = self.lines().into_iter().flat_map(|line| (line + "\n").into_bytes());
        bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// Formats a failure: the seed, the violations, the drawn clocks and faults, the end of the trace, and a
    /// command to replay it.
    fn report(&self, violations: &[String]) -> String {
        let seed = self.plan.seed;
        let faults: Vec<_> = self.plan.faults.iter().map(ToString::to_string).collect();
        let clocks: Vec<_> = self.plan.clocks.iter().map(ToString::to_string).collect();
        let lines = self.lines();
        let tail = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
        // Test threads are named after their test.
        let package = env::var("CARGO_PKG_NAME").map(|name| format!(" -p {name}")).unwrap_or_default();
        let test = thread::current().name().unwrap_or_default().to_owned();
        [
            format!("seed {seed}"),
            violations.join("\n"),
            format!("clocks of the nodes: {}", clocks.join(" · ")),
            format!("faults:\n    {}", faults.join("\n    ")),
            format!("last {} of {} lines of the trace:\n{}", tail.len(), lines.len(), tail.join("\n")),
            format!("to reproduce:\n    SIM_SEED={seed} cargo test{package} --all-features {test}"),
        ]
        .join("\n\n")
    }
}
