//! The result of a run: its plan, its trace, and the check of the invariants.

use std::collections::BTreeMap;
use std::env;
use std::rc::Rc;
use std::thread;

use enrich_lib::credit::Balance;

use crate::event::Event;
use crate::invariants;
use crate::lookup_history::{LookupHistory, last_balances, lookup_histories};
use crate::plan::Plan;
use crate::seeds::parts;
use crate::shrink::{Part, shrink};
use crate::topology::client_name;
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
    repeat: Option<Repeat>,
}

/// Runs another plan in the same world.
#[derive(Clone, derive_more::Debug)]
#[debug("Repeat")]
struct Repeat(Rc<dyn Fn(Plan) -> Run>);

impl Run {
    pub(crate) fn new(plan: Plan, trace: Vec<Entry>, failure: Option<String>) -> Self {
        Self { plan, trace, failure, repeat: None }
    }

    /// Lets a violation be shrunk.
    pub(crate) fn with_repeat(self, repeat: impl Fn(Plan) -> Self + 'static) -> Self {
        Self { repeat: Some(Repeat(Rc::new(repeat))), ..self }
    }

    /// Checks all invariants. If one is violated, shrinks the plan and panics with a report.
    pub fn check(self) -> Self {
        if !self.violations().is_empty() {
            let (all, parts) = (self.plan.parts(), parts().unwrap_or_else(|| self.shrink()));
            let shrunk = self.repeat.as_ref().map(|repeat| (repeat.0)(self.plan.only(&parts)));
            panic!("{}", shrunk.unwrap_or(self).report(if parts == all { &[] } else { &parts }));
        }
        self
    }

    /// Returns the parts of the plan without which this run's first violation does not occur. Runs up to 500
    /// smaller plans. Returns all parts if no invariant is violated, or if the world has a database of a
    /// gateway.
    pub fn shrink(&self) -> Vec<Part> {
        match (self.violated(), &self.repeat) {
            (Some(name), Some(repeat)) => shrink(&self.plan, |plan| {
                (repeat.0)(plan.clone()).violations().iter().any(|violation| title(violation) == name)
            }),
            _ => self.plan.parts(),
        }
    }

    /// Returns the name of the first violation.
    fn violated(&self) -> Option<String> {
        self.violations().first().map(|violation| title(violation).to_owned())
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

    /// Formats a failure: the seed, the violations, the remaining parts of the plan, the end of the trace,
    /// and a command that repeats the run with these `parts`, or the whole one if there are none.
    fn report(&self, parts: &[Part]) -> String {
        let Plan { seed, faults, operations, clients, clocks, .. } = &self.plan;
        let operations: Vec<_> = operations.iter().map(ToString::to_string).collect();
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        let clocks: Vec<_> = clocks.iter().map(ToString::to_string).collect();
        let requests = clients.iter().enumerate().flat_map(|(client, requests)| {
            requests.iter().map(move |request| format!("{}: {request}", client_name(client)))
        });
        let requests: Vec<_> = requests.collect();
        let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
        let parts = if parts.is_empty() { String::new() } else { format!("SIM_PARTS={} ", parts.join(",")) };
        let lines = self.lines();
        let tail = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
        // Test threads are named after their test.
        let package = env::var("CARGO_PKG_NAME").map(|name| format!(" -p {name}")).unwrap_or_default();
        let test = thread::current().name().unwrap_or_default().to_owned();
        [
            format!("seed {seed}"),
            self.violations().join("\n"),
            format!("clocks of the nodes: {}", clocks.join(" · ")),
            format!("faults:\n    {}", faults.join("\n    ")),
            format!("operators:\n    {}", operations.join("\n    ")),
            format!("requests:\n    {}", requests.join("\n    ")),
            format!("last {} of {} lines of the trace:\n{}", tail.len(), lines.len(), tail.join("\n")),
            format!("to reproduce:\n    SIM_SEED={seed} {parts}cargo test{package} --all-features {test}"),
        ]
        .join("\n\n")
    }
}

/// Returns the name of the invariant in a violation.
fn title(violation: &str) -> &str {
    violation.split_once('\n').map_or("the simulation failed", |(name, _)| name)
}
