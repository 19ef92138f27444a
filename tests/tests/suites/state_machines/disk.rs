//! The durable state of one workspace, which survives a crash.

use super::model::LOOKUPS;

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) granted: u64,
    spends: [Option<Spend>; LOOKUPS],
}

#[derive(Clone, Copy, Debug)]
struct Spend {
    credits: u64,
    is_voided: bool,
}

impl Disk {
    pub(crate) fn with_credits(granted: u64) -> Self {
        Self { granted, ..Self::default() }
    }

    /// Writes a spend. Repeated writes have no effect. Returns `false` if the spend has been voided.
    pub(crate) fn spend(&mut self, lookup: usize, credits: u64) -> bool {
        !self.spends[lookup].get_or_insert(Spend { credits, is_voided: false }).is_voided
    }

    pub(crate) fn void(&mut self, lookup: usize) {
        if let Some(spend) = &mut self.spends[lookup] {
            spend.is_voided = true;
        }
    }

    pub(crate) fn contains(&self, lookup: usize) -> bool {
        self.spends[lookup].is_some()
    }

    /// Returns whether the spend of `lookup` was written and not voided.
    pub(crate) fn charged(&self, lookup: usize) -> bool {
        self.spends[lookup].is_some_and(|spend| !spend.is_voided)
    }

    /// Returns the credits of all spends that were not voided.
    pub(crate) fn spent(&self) -> u64 {
        self.spends.iter().flatten().filter(|spend| !spend.is_voided).map(|spend| spend.credits).sum()
    }
}
