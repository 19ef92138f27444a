//! Invariant 8.

use super::ensure;
use crate::event::Event;
use crate::story::stories;
use crate::trace::Entry;

/// Every lookup ends with one line in the log, whatever becomes of its client, unless its node crashes before; and none
/// panics.
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
