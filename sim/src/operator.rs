//! The operator: changes the clients' workspace, its key and opt-outs while faults last, by the commands' own
//! operations on the stores.

use std::fmt;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

use crate::clock::random_ms;

/// A change by an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Grants credits.
    Grant(u64),
    /// Withdraws credits, if as many are not spent.
    Withdraw(u64),
    /// Refunds the spend that has the smallest id of those without a refund.
    Refund,
    /// Sets the number of requests in a window.
    SetLimit(u32),
    /// Disables the clients' key, or enables it again.
    SetKeyEnabled(bool),
    /// Suspends the workspace, or resumes it.
    SetSuspended(bool),
    /// Opts out a person that several clients look up, or withdraws the opt-out.
    SetOptedOut(String, bool),
}

/// A change with its time, relative to the start of the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedOperation {
    /// When the operator makes the change, or later if the disk fails then.
    pub at: Duration,
    /// The change.
    pub operation: Operation,
}

impl PlannedOperation {
    /// Draws a change. `person` returns the email of a person that several clients look up.
    pub(crate) fn draw(rng: &mut StdRng, pace: u32, person: impl Fn(usize) -> String) -> Self {
        let operation = match rng.random_range(0..14) {
            0 | 1 => Operation::Grant(rng.random_range(1..=3)),
            12 | 13 => Operation::Withdraw(rng.random_range(1..=4)),
            2 | 3 => Operation::Refund,
            4 => Operation::SetLimit(rng.random_range(1..=8)),
            5 | 6 => Operation::SetKeyEnabled(rng.random_bool(0.6)),
            7 | 8 => Operation::SetSuspended(rng.random_bool(0.4)),
            _ => Operation::SetOptedOut(person(rng.random_range(0..2)), rng.random_bool(0.6)),
        };
        Self { at: random_ms(rng, 0..8_000) * pace, operation }
    }
}

impl Operation {
    /// The names of all changes, as [`Operation::name`] returns them.
    pub const NAMES: [&str; 7] = [
        "grant",
        "withdrawal",
        "refund",
        "limit changed",
        "key disabled or enabled",
        "suspended or resumed",
        "opt-out changed",
    ];

    /// Returns the name under which statistics count this change.
    pub fn name(&self) -> &'static str {
        let [grant, withdrawal, refund, limit, key, workspace, opt_out] = Self::NAMES;
        match self {
            Self::Grant(_) => grant,
            Self::Withdraw(_) => withdrawal,
            Self::Refund => refund,
            Self::SetLimit(_) => limit,
            Self::SetKeyEnabled(_) => key,
            Self::SetSuspended(_) => workspace,
            Self::SetOptedOut(..) => opt_out,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grant(credits) => write!(f, "grants {credits} credits"),
            Self::Withdraw(credits) => write!(f, "withdraws {credits} credits"),
            Self::Refund => f.write_str("refunds a spend"),
            Self::SetLimit(limit) => write!(f, "sets the limit to {limit}"),
            Self::SetKeyEnabled(true) => f.write_str("enables the key"),
            Self::SetKeyEnabled(false) => f.write_str("disables the key"),
            Self::SetSuspended(true) => f.write_str("suspends the workspace"),
            Self::SetSuspended(false) => f.write_str("resumes the workspace"),
            Self::SetOptedOut(email, true) => write!(f, "opts {email} out"),
            Self::SetOptedOut(email, false) => write!(f, "withdraws the opt-out of {email}"),
        }
    }
}

impl fmt::Display for PlannedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:?}: {}", self.at, self.operation)
    }
}
