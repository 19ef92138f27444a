//! The run of one seed: a service that is started several times on the same disk. Each time, a power cut
//! stops it and an audit follows.

use std::path::Path;

use enrich_disk::{Disk, SyncFault};
use enrich_sqlite::DataDir;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use crate::counters::Counters;
use crate::expected_state::{ExpectedState, Violation};
use crate::seeds::CUTS_PER_SEED;
use crate::service::run_until_cut;

/// Runs one seed. Returns the first violation.
pub(crate) fn run(seed: u64, sync_fault: SyncFault) -> Result<Counters, Violation> {
    let mut rng = StdRng::seed_from_u64(seed);
    // Only the locks are in it.
    let memory = Path::new("/dev/shm");
    let tmp = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
    let dir = DataDir::create(tmp.path().join("data")).unwrap();
    let sector_bytes = *[512, 4096].choose(&mut rng).unwrap();
    let disk = Disk::mount(dir.path(), sector_bytes, sync_fault, rng.random());
    let mut expected = ExpectedState::default();
    for _ in 0..CUTS_PER_SEED {
        disk.cut_after(random_steps(&mut rng));
        while disk.is_on() {
            match run_until_cut(&dir, &disk, &mut expected, &mut rng) {
                Err(error) if disk.is_on() => return Err(Violation::OperationFailed(error.to_string())),
                _ => {}
            }
        }
        disk.power_on();
        // The next start continues from the state after the cut, without the effects of the audit.
        let image = disk.image();
        expected.audit(&dir)?;
        disk.restore(image);
    }
    let mut counters = expected.into_counters();
    counters.count("database sync", disk.database_syncs());
    Ok(counters)
}

/// Returns a number of steps before a cut, with a log-uniform distribution: the first ten steps are as likely
/// as those between the hundredth and the thousandth.
fn random_steps(rng: &mut StdRng) -> u32 {
    10_f64.powf(rng.random_range(0.0..3.5)) as u32
}
