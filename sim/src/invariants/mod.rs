//! Properties that hold in every run, with any faults. Each module checks one of them on the trace.

mod ensure;
mod conservation;
mod shared_accounts;
mod holds;
mod verification;
mod replies;
mod recovery;
mod billing;
mod privacy;
mod completion;
mod delivery;
mod usage;

use crate::model;
use crate::trace::Entry;

/// A property that must hold for every trace, and its checker. The error describes the violation.
pub type Invariant = (&'static str, fn(&[Entry]) -> Result<(), String>);

/// All invariants, in the order of their numbers in the README.
pub const ALL: [Invariant; 12] = [
    (
        "granted = available + held + spent, the balances match the port calls, and the database matches both",
        conservation::check,
    ),
    (
        "in shared accounts no more is used than granted, and the holds, the committed spends and the rest of settlements add \
         up to what is used",
        shared_accounts::check,
    ),
    ("a lookup holds once and settles its hold once, before it expires", holds::check),
    (
        "no lookup is counted twice or executed without a verified count, no window admits more than its limit, \
         and the vendor receives no request for a person who was refused or opted out",
        verification::check,
    ),
    ("every reply is one of the specification's", replies::check),
    ("after healing, a valid request succeeds and all holds end", recovery::check),
    (
        "a lookup requests a spend if and only if its result has a price; the result is sent if and only if it is spent, \
         unless its node crashes",
        billing::check,
    ),
    ("no email, key or profile is in the log", privacy::check),
    ("every lookup ends with one line in the log, unless its node crashes", completion::check),
    ("a reply reaches a client that waits for it, also from a node that stops", delivery::check),
    ("the usage counts each billed lookup, and each free one once, unless a fault loses it", usage::check),
    ("each result is one that the model permits: those that fail or are refused have a cause", model::check),
];
