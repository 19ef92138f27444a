//! The trace: all events of a run, in order.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::event::Event;

/// A shared log of events. Clones write to the same trace.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<Vec<Entry>>>);

/// An event and its time since the start of the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// When the event happened.
    pub at: Duration,
    /// The event.
    pub event: Event,
}

impl Trace {
    /// Records an event at the current time. Must run on a simulated machine.
    pub fn record(&self, event: Event) {
        self.record_at(turmoil::sim_elapsed().unwrap_or_default(), event);
    }

    /// Records an event that is not on any machine and therefore has no current time.
    pub fn record_at(&self, at: Duration, event: Event) {
        self.with(|entries| entries.push(Entry { at, event }));
    }

    /// Runs `read` on the events recorded so far.
    pub fn with<T>(&self, read: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
        read(&mut self.0.lock())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.3}  {}", self.at.as_secs_f64(), self.event)
    }
}
