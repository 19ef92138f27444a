//! The credits that workspaces were granted, and what nodes may have read of them.

use std::collections::BTreeMap;
use std::time::Duration;

use enrich_lib::model::WorkspaceId;

use super::state::CHANGE_TIME;
use crate::event::Event;
use crate::fault::FaultKind;
use crate::trace::Entry;

/// The grants of a run up to some moment.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// The sums of the grants of each workspace, and since when.
    totals: BTreeMap<WorkspaceId, Vec<(Duration, u64)>>,
    failing_disks: usize,
    failed_until: Duration,
}

impl Grants {
    /// Adds an event of the run.
    pub(crate) fn add(&mut self, Entry { at, event }: &Entry) {
        match event {
            Event::FaultStarted(FaultKind::Disk(..)) => self.failing_disks += 1,
            Event::FaultEnded(FaultKind::Disk(..)) => {
                self.failing_disks -= 1;
                self.failed_until = *at;
            }
            Event::CreditsGranted(workspace, credits) => {
                let totals = self.totals.entry(workspace.clone()).or_default();
                let before = totals.last().map_or(0, |(_, total)| *total);
                totals.push((*at, before.saturating_add_signed(*credits)));
            }
            _ => {}
        }
    }

    /// Returns whether a node may take `granted` for the sum of a workspace's grants at the moment `at`.
    pub(crate) fn may_be(&self, workspace: &WorkspaceId, granted: u64, at: Duration) -> bool {
        let totals = self.totals(workspace);
        let ends = totals.iter().skip(1).map(|(next, _)| self.read_by(*next, at)).chain([Duration::MAX]);
        totals.iter().zip(ends).any(|((_, total), end)| *total == granted && at <= end)
    }

    /// Returns the least sum of the grants that a node may have read last at the moment `at`.
    pub(super) fn least(&self, workspace: &WorkspaceId, at: Duration) -> u64 {
        let is_read = |since: Duration| since.is_zero() || self.read_by(since, at) <= at;
        let totals = self.totals(workspace);
        let read = totals.iter().rposition(|(since, _)| is_read(*since)).unwrap_or_default();
        totals.iter().skip(read).map(|(_, total)| *total).min().unwrap_or_default()
    }

    fn totals(&self, workspace: &WorkspaceId) -> &[(Duration, u64)] {
        self.totals.get(workspace).map_or(&[], Vec::as_slice)
    }

    /// Returns when each node has read a grant. None is read while the disk fails.
    fn read_by(&self, granted_at: Duration, at: Duration) -> Duration {
        let failed_until = if self.failing_disks > 0 { at } else { self.failed_until };
        granted_at.max(failed_until) + CHANGE_TIME
    }
}
