//! Invariant 8.

use super::ensure;
use crate::event::Event;
use crate::story::stories;
use crate::trace::Entry;

/// Checks that every lookup logs exactly one line at its end, unless its node crashes first, even if its client disconnects.
/// Also checks that no lookup panics.
pub(super) fn check(entries: &[Entry]) -> Result<(), String> {
    for (lookup, story) in stories(entries) {
        let is_told = if story.is_cut_off { story.ends.is_empty() } else { story.ends.len() == 1 };
        ensure(is_told, || format!("{lookup} ends {} times: {story:?}", story.ends.len()))?;
    }
    for entry in entries {
        let panicked = matches!(&entry.event, Event::Logged(logged) if logged.line.contains("panicked"));
        ensure(!panicked, || entry.to_string())?;
    }
    Ok(())
}
