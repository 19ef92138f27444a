//! Sums of lookups, the numbers of all tables and of the chart.

use enrich_store::grouped;
use enrich_store::usage::{BILLED, UsageRow};

/// Lookups by what they cost and how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) billed: u64,
    /// Lookups that returned a profile and were free: repetitions, and those without a price.
    pub(crate) found_free: u64,
    pub(crate) not_found: u64,
    /// Lookups that were refused or failed.
    pub(crate) refused: u64,
    pub(crate) credits: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, row: &UsageRow) {
        let lookups = match row.outcome.as_str() {
            BILLED => &mut self.billed,
            "found" => &mut self.found_free,
            "not_found" => &mut self.not_found,
            _ => &mut self.refused,
        };
        *lookups += row.lookups;
        self.credits += row.credits;
    }

    pub(crate) fn lookups(&self) -> u64 {
        self.billed + self.found_free + self.not_found + self.refused
    }

    pub(crate) fn cells(&self) -> [String; 6] {
        let Self { billed, found_free, not_found, refused, credits } = *self;
        [self.lookups(), billed, found_free, not_found, refused, credits].map(grouped)
    }
}
