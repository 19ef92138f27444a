//! Counts of events, to verify that a run covered all cases.

use std::collections::BTreeMap;

/// The events, and how often each must occur for a run to be meaningful.
const EVENTS_MIN: [(&str, u64); 9] = [
    ("cut", 10),
    // The sum over all audits.
    ("acknowledged spend found", 10),
    ("failed spend not found", 10),
    // The process ends because a sync failed.
    ("fail stop", 10),
    // A spend that was pending at a cut.
    ("pending spend kept", 10),
    ("pending spend lost", 10),
    // A grant or a new workspace that was pending at a cut. 2,000 cuts keep about 8.
    ("pending grant kept", 5),
    ("pending grant lost", 10),
    // A sync of the database by a checkpoint.
    ("database sync", 10),
];

/// Counts over all audits of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters(BTreeMap<&'static str, u64>);

impl Counters {
    pub(crate) fn count(&mut self, event: &'static str, times: u64) {
        assert!(EVENTS_MIN.iter().any(|(name, _)| *name == event), "{event}");
        *self.0.entry(event).or_default() += times;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(event, times)| self.count(event, *times));
    }

    pub(crate) fn get(&self, event: &str) -> u64 {
        self.0.get(event).copied().unwrap_or_default()
    }

    pub(crate) fn assert_all_occurred(&self) {
        for (event, min) in EVENTS_MIN {
            assert!(self.get(event) >= min, "{event}: {self:?}");
        }
    }
}
