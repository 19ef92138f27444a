//! Counts of events, to verify that a run covered all cases.

/// Counts over all audits of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) cuts: u64,
    /// Acknowledged spends that were found, summed over all audits.
    pub(crate) acknowledged: u64,
    /// Failed spends that were not found, summed over all audits.
    pub(crate) failed: u64,
    /// Processes that ended because a sync failed.
    pub(crate) fail_stops: u64,
    /// Spends that were pending at a cut and are on disk.
    pub(crate) pending_kept: u64,
    /// Spends that were pending at a cut and are not on disk.
    pub(crate) pending_lost: u64,
    /// Grants and new workspaces that were pending at a cut: on disk, and not on disk.
    pub(crate) grants_kept: u64,
    pub(crate) grants_lost: u64,
    /// Syncs of the database, made by checkpoints.
    pub(crate) database_syncs: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.acknowledged += other.acknowledged;
        self.failed += other.failed;
        self.fail_stops += other.fail_stops;
        self.pending_kept += other.pending_kept;
        self.pending_lost += other.pending_lost;
        self.grants_kept += other.grants_kept;
        self.grants_lost += other.grants_lost;
        self.database_syncs += other.database_syncs;
    }

    /// Asserts that every kind of event occurred often enough for the run to be meaningful.
    pub(crate) fn assert_all_occurred(&self) {
        let Self {
            cuts,
            acknowledged,
            failed,
            fail_stops,
            pending_kept,
            pending_lost,
            grants_kept,
            grants_lost,
            database_syncs,
        } = self;
        let counts =
            [cuts, acknowledged, failed, fail_stops, pending_kept, pending_lost, grants_lost, database_syncs];
        assert!(counts.iter().all(|count| **count >= 10), "{self:?}");
        // A cut rarely keeps an unsynced grant: 8 times in 2,000 cuts.
        assert!(*grants_kept >= 5, "{self:?}");
    }
}
