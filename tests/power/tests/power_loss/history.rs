//! The run of one seed: several lives of a service on the same disk, each ended by a power cut and followed by an
//! audit.

use enrich_power::{Disk, Lie};
use enrich_sqlite::DataDir;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use crate::books::{Books, Broken};
use crate::life::live;

pub(crate) const CUTS_OF_A_SEED: u64 = 5;

/// Counts of events, to verify that a run covered all cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) cuts: u64,
    /// Acknowledged spends that were found, summed over all audits.
    pub(crate) told: u64,
    /// Voided spends that were found as such, summed over all audits.
    pub(crate) voided: u64,
    /// Spends that were pending at a cut and are on disk.
    pub(crate) kept: u64,
    /// Spends that were pending at a cut and are not on disk.
    pub(crate) gone: u64,
    /// Grants and new workspaces that were pending at a cut: on disk, and not on disk.
    pub(crate) grants_kept: u64,
    pub(crate) grants_gone: u64,
    /// Syncs of the database, made by checkpoints.
    pub(crate) database_syncs: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, more: &Self) {
        self.cuts += more.cuts;
        self.told += more.told;
        self.voided += more.voided;
        self.kept += more.kept;
        self.gone += more.gone;
        self.grants_kept += more.grants_kept;
        self.grants_gone += more.grants_gone;
        self.database_syncs += more.database_syncs;
    }

    /// Asserts that every kind of event occurred often enough for the run to be meaningful.
    pub(crate) fn assert_that_all_was_tried(&self) {
        let Self { cuts, told, voided, kept, gone, grants_kept, grants_gone, database_syncs } = self;
        let counts = [cuts, told, voided, kept, gone, grants_kept, grants_gone, database_syncs];
        assert!(counts.iter().all(|count| **count >= 10), "{self:?}");
    }
}

pub(crate) fn run(seed: u64, lie: Lie) -> Result<Tally, Broken> {
    let mut rng = StdRng::seed_from_u64(seed);
    let tmp = TempDir::new().unwrap();
    let dir = DataDir::create(tmp.path().join("data")).unwrap();
    let sector_bytes = *[512, 4096].choose(&mut rng).unwrap();
    let disk = Disk::mount(dir.path(), sector_bytes, lie, rng.random());
    let mut books = Books::default();
    for _ in 0..CUTS_OF_A_SEED {
        disk.cut_after(soon_or_late(&mut rng));
        while disk.is_on() {
            match live(&dir, &disk, &mut books, &mut rng) {
                Err(error) if disk.is_on() => return Err(Broken::Refused(error.to_string())),
                _ => {}
            }
        }
        disk.power_on();
        // The next life continues from the state after the cut, without the effects of the audit.
        let left = disk.image();
        books.audit(&dir)?;
        disk.restore(left);
    }
    Ok(Tally { database_syncs: disk.database_syncs(), ..books.tally() })
}

/// Returns a number of steps before a cut, with a log-uniform distribution: the first ten steps are as likely as those
/// between the hundredth and the thousandth.
fn soon_or_late(rng: &mut StdRng) -> u32 {
    10_f64.powf(rng.random_range(0.0..3.5)) as u32
}
