//! The trace: everything that happened in a run, in its order.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::event::Event;

/// Takes notes. Clones write into the same trace.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<Vec<Entry>>>);

/// An event and its time, from the start of the run.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When it happened.
    pub at: Duration,
    /// What happened.
    pub event: Event,
}

impl Trace {
    /// Notes what happens at this moment on a simulated machine.
    pub fn note(&self, event: Event) {
        self.note_at(turmoil::sim_elapsed().unwrap_or_default(), event);
    }

    /// Notes what happens to the world as a whole, which has no machine and no clock of its own.
    pub fn note_at(&self, at: Duration, event: Event) {
        self.with(|entries| entries.push(Entry { at, event }));
    }

    /// Looks at what has happened so far.
    pub fn with<T>(&self, look: impl FnOnce(&mut Vec<Entry>) -> T) -> T {
        // Every critical section leaves the list whole.
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.3}  {}", self.at.as_secs_f64(), self.event)
    }
}
