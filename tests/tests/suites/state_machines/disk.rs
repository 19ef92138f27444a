//! The durable state of one workspace, which survives a crash.

use super::model::LOOKUPS;

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) granted: u64,
    /// The credits of each spend.
    spends: [Option<u64>; LOOKUPS],
}

impl Disk {
    pub(crate) fn with_credits(granted: u64) -> Self {
        Self { granted, ..Self::default() }
    }

    /// Writes a spend. Repeated writes have no effect.
    pub(crate) fn spend(&mut self, lookup: usize, credits: u64) {
        self.spends[lookup].get_or_insert(credits);
    }

    pub(crate) fn spent_by(&self, lookup: usize) -> Option<u64> {
        self.spends[lookup]
    }

    pub(crate) fn contains(&self, lookup: usize) -> bool {
        self.spends[lookup].is_some()
    }

    /// Returns the credits of all spends.
    pub(crate) fn spent(&self) -> u64 {
        self.spends.iter().flatten().sum()
    }
}
