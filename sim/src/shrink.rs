//! Shrinks a plan that violates an invariant: leaves out faults, requests and wrong clocks.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::clock::Clock;
use crate::plan::Plan;

/// The maximum number of runs of one search. A run takes some tens of milliseconds.
const RUNS_MAX: usize = 500;

/// A part of a plan that can be left out. Its text is a letter and a number, such as `f0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The fault with this index.
    Fault(usize),
    /// The request with this number in the run.
    Request(usize),
    /// The error of the clock of the node with this number.
    Clock(usize),
    /// The change of an operator with this index.
    Operation(usize),
}

impl Part {
    /// Parses a list of parts, separated by commas.
    ///
    /// # Errors
    ///
    /// Returns the text that is no part.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').filter(|part| !part.is_empty()).map(str::parse).collect()
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(number) => write!(f, "f{number}"),
            Self::Request(number) => write!(f, "r{number}"),
            Self::Clock(number) => write!(f, "c{number}"),
            Self::Operation(number) => write!(f, "o{number}"),
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let part = text.split_at_checked(1).and_then(|(kind, number)| {
            let number = number.parse().ok()?;
            match kind {
                "f" => Some(Self::Fault(number)),
                "r" => Some(Self::Request(number)),
                "c" => Some(Self::Clock(number)),
                "o" => Some(Self::Operation(number)),
                _ => None,
            }
        });
        part.ok_or_else(|| text.to_owned())
    }
}

impl Plan {
    /// Returns all parts of the plan.
    pub fn parts(&self) -> Vec<Part> {
        let faults = (0..self.faults.len()).map(Part::Fault);
        let requests = (0..self.clients.iter().map(Vec::len).sum()).map(Part::Request);
        let is_wrong = |node: &usize| self.clocks[*node] != Clock::default();
        let clocks = (0..self.clocks.len()).filter(is_wrong).map(Part::Clock);
        let operations = (0..self.operations.len()).map(Part::Operation);
        faults.chain(clocks).chain(operations).chain(requests).collect()
    }

    /// Returns a plan with these parts only. Its clients pause longer instead of the requests that are left
    /// out, and the remaining faults start when they did.
    pub fn only(&self, parts: &[Part]) -> Self {
        let mut plan = self.clone();
        let mut faults = (0..).map(|number| parts.contains(&Part::Fault(number)));
        plan.faults.retain(|_| faults.next() == Some(true));
        let mut operations = (0..).map(|number| parts.contains(&Part::Operation(number)));
        plan.operations.retain(|_| operations.next() == Some(true));
        for (node, clock) in plan.clocks.iter_mut().enumerate() {
            if !parts.contains(&Part::Clock(node)) {
                *clock = Clock::default();
            }
        }
        let mut requests = (0..).map(|number| parts.contains(&Part::Request(number)));
        for (number, client) in plan.clients.iter_mut().enumerate() {
            let mut skipped = Duration::ZERO;
            client.retain_mut(|request| {
                let is_kept = requests.next() == Some(true);
                if is_kept {
                    request.pause += std::mem::take(&mut skipped);
                } else if self.crowd != Some(number) {
                    skipped += request.pause;
                }
                is_kept
            });
        }
        plan
    }
}

/// Returns the parts that remain when no further one can be left out: `violates` returns whether a plan still
/// violates the invariant.
///
/// Tries to leave out all parts, then each half, each quarter, and so on (Zeller's *delta debugging*).
pub(crate) fn shrink(plan: &Plan, mut violates: impl FnMut(&Plan) -> bool) -> Vec<Part> {
    let (mut parts, mut runs) = (plan.parts(), 0);
    let mut count = parts.len();
    while count > 0 && runs < RUNS_MAX {
        let (mut start, before) = (0, parts.len());
        while start < parts.len() && runs < RUNS_MAX {
            let end = (start + count).min(parts.len());
            let rest = [&parts[..start], &parts[end..]].concat();
            runs += 1;
            if violates(&plan.only(&rest)) {
                parts = rest;
            } else {
                start = end;
            }
        }
        // A part may be needed only because of another one that is gone now.
        let is_done = count > 1 || parts.len() == before;
        count = if is_done { count / 2 } else { 1 };
    }
    parts
}
