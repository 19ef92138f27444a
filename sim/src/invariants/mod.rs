//! Properties that hold in every run, with any faults. Each module checks one of them on the trace.

mod billing;
mod conservation;
mod endings;
mod holds;
mod leases;
mod privacy;
mod recovery;
mod replies;
mod verification;

use crate::trace::Entry;

/// A property that must hold for every trace, and its checker. The error describes the violation.
pub type Invariant = (&'static str, fn(&[Entry]) -> Result<(), String>);

/// All invariants.
pub const ALL: [Invariant; 9] = [
    (
        "granted = available + held + spent, and the totals are what the store's deeds add up to",
        conservation::check,
    ),
    (
        "in shared books granted = free + leased + spent, leases and spends add up to that, and no node holds more than is \
         left of a lease that lives",
        leases::check,
    ),
    ("a hold ends at most once", holds::check),
    (
        "nothing is executed without a verified count, never more than the limit in a window, nobody is served by a key \
         that was revoked, and the vendor hears of nobody who was refused or opted out",
        verification::check,
    ),
    ("every reply is one of the specification's", replies::check),
    ("after healing, a valid request succeeds and all holds end", recovery::check),
    (
        "a lookup asks to spend if and only if it is told of a profile; a 200 is sent if and only if its lookup is spent, \
         unless its node crashes or a faulty wrapper loses the answer of a store that did its work",
        billing::check,
    ),
    ("no email and no key is in the log", privacy::check),
    ("every lookup ends with one line in the log, unless its node crashes", endings::check),
];

/// Returns an error unless `holds`.
fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
