//! Invariant 8.

use super::ensure::ensure;
use crate::event::Event;
use crate::lookup_history::lookup_histories;
use crate::trace::Entry;

/// Checks that every lookup logs exactly one line at its end, unless its node crashes first, even if its
/// client disconnects. Also checks that no lookup panics.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    for (lookup, history) in lookup_histories(entries) {
        let logged = history.logged_statuses.len();
        let expected = if history.is_interrupted { 0 } else { 1 };
        ensure(logged == expected, || format!("{lookup} logs {logged} lines at its end: {history:?}"))?;
    }
    for entry in entries {
        let panicked = matches!(&entry.event, Event::Logged(line) if line.text.contains("panicked"));
        ensure(!panicked, || entry.to_string())?;
    }
    Ok(())
}
