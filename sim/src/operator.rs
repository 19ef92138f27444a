//! The operator: changes the clients' workspace, its keys, people and opt-outs while faults last, by the commands' own
//! operations on the stores.

use std::fmt;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use strum::{IntoStaticStr, VariantNames};

use crate::clock::random_ms;
use crate::keys::KeyOf;
use crate::topology::StoreKind;

/// A change by an operator.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
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
    /// Creates a key of the clients' workspace.
    CreateKey(KeyOf),
    /// Disables a key, or enables it again.
    SetKeyEnabled(KeyOf, bool),
    /// Replaces a key, which works for this time longer.
    RotateKey(KeyOf, Duration),
    /// Revokes a key permanently.
    RevokeKey(KeyOf),
    /// Suspends the workspace, or resumes it.
    SetSuspended(bool),
    /// Deletes the workspace. Operators then change only people and opt-outs.
    Delete,
    /// Removes all spends whose receipt has ended.
    RemoveSpends,
    /// Opts out a person that several clients look up, or withdraws the opt-out.
    SetOptedOut(String, bool),
    /// Imports the profile of a person.
    Import {
        /// The email.
        email: String,
        /// The name of the profile.
        profile: String,
        /// True if the import deletes all other people.
        replaces: bool,
    },
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
    /// Draws a change. `person` returns the email and the name of the profile of a person that
    /// several clients look up.
    pub(crate) fn draw(
        rng: &mut StdRng,
        stores: StoreKind,
        pace: u32,
        person: impl Fn(usize) -> (String, String),
    ) -> Self {
        let of = *KeyOf::CLIENTS.choose(rng).expect("not empty");
        let operation = match rng.random_range(0..33) {
            14 if rng.random_bool(0.5) => Operation::RevokeKey(of),
            // In place of the deletions below, which the fake PostgreSQL does not make.
            9..12 if stores != StoreKind::Sqlite => Operation::Refund,
            0 | 1 => Operation::Grant(rng.random_range(1..=3)),
            12 | 13 => Operation::Withdraw(rng.random_range(1..=4)),
            2 | 3 => Operation::Refund,
            4 => Operation::SetLimit(rng.random_range(1..=8)),
            5 | 6 => Operation::SetKeyEnabled(of, rng.random_bool(0.6)),
            7 | 8 => Operation::SetSuspended(rng.random_bool(0.4)),
            9 if rng.random_bool(0.2) => Operation::Delete,
            10 | 11 => Operation::RemoveSpends,
            15..19 => {
                Operation::CreateKey(if rng.random_bool(0.7) { KeyOf::Test } else { KeyOf::ClientsNew })
            }
            19..22 => {
                let of = if rng.random_bool(0.5) { KeyOf::Clients } else { KeyOf::Test };
                let grace = *[0, 0, 8, 12].choose(rng).expect("not empty");
                Operation::RotateKey(of, Duration::from_secs(grace))
            }
            22..29 => {
                let (number, version) = (rng.random_range(0..2), rng.random_range(1..=3));
                let (email, profile) = person(number);
                let profile = format!("{profile}-v{version}");
                Operation::Import { email, profile, replaces: rng.random_bool(0.5) }
            }
            _ => Operation::SetOptedOut(person(rng.random_range(0..2)).0, rng.random_bool(0.6)),
        };
        Self { at: random_ms(rng, 0..8_000) * pace, operation }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grant(credits) => write!(f, "grants {credits} credits"),
            Self::Withdraw(credits) => write!(f, "withdraws {credits} credits"),
            Self::Refund => f.write_str("refunds a spend"),
            Self::SetLimit(limit) => write!(f, "sets the limit to {limit}"),
            Self::CreateKey(of) => write!(f, "creates the key {of:?}"),
            Self::SetKeyEnabled(of, true) => write!(f, "enables the key {of:?}"),
            Self::SetKeyEnabled(of, false) => write!(f, "disables the key {of:?}"),
            Self::RotateKey(of, grace) => write!(f, "replaces the key {of:?}, which ends {grace:?} later"),
            Self::RevokeKey(of) => write!(f, "revokes the key {of:?}"),
            Self::SetSuspended(true) => f.write_str("suspends the workspace"),
            Self::SetSuspended(false) => f.write_str("resumes the workspace"),
            Self::Delete => f.write_str("deletes the workspace"),
            Self::RemoveSpends => f.write_str("removes old spends"),
            Self::SetOptedOut(email, true) => write!(f, "opts {email} out"),
            Self::SetOptedOut(email, false) => write!(f, "withdraws the opt-out of {email}"),
            Self::Import { email, profile, replaces } => {
                let only = if *replaces { "only " } else { "" };
                write!(f, "imports {only}{email} with the profile {profile}")
            }
        }
    }
}

impl fmt::Display for PlannedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:?}: {}", self.at, self.operation)
    }
}
