//! Acknowledged changes are durable, whenever the power is cut.
//!
//! `POWER_CUTS=n` sets the number of cuts, `POWER_SEED=n` runs one seed again.
//!
//! Each module imports only modules before it: `seeds` the seeds to run · `counters` counts of events ·
//! `expected_state` the acknowledged state · `service` a service until the power is cut · `simulation` the
//! run of one seed · `io_errors` reads that fail for a while.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod seeds;
mod counters;
mod expected_state;
mod service;
mod simulation;
mod io_errors;

use enrich_disk::SyncFault;

use crate::counters::Counters;
use crate::expected_state::Violation;
use crate::seeds::{CUTS_PER_SEED, seeds};
use crate::simulation::run;

const CUTS: u64 = 2_000;

/// The number of seeds on a disk with a sync fault.
const FAULTY_SEEDS: u64 = 100 / CUTS_PER_SEED;

#[test]
fn acknowledged_changes_survive_every_power_cut() {
    let mut counters = Counters::default();
    for seed in seeds(CUTS) {
        match run(seed, SyncFault::None) {
            Ok(more) => counters.add(&more),
            Err(violation) => {
                panic!("{violation}\nto reproduce:\n    POWER_SEED={seed} cargo test -p enrich-disk")
            }
        }
    }
    if counters.get("cut") >= CUTS {
        counters.assert_all_occurred();
    }
}

#[test]
fn same_seed_gives_same_run() {
    for seed in 1..=20 {
        assert_eq!(run(seed, SyncFault::None).unwrap(), run(seed, SyncFault::None).unwrap());
    }
}

#[test]
fn loses_acknowledged_spends_if_log_is_not_synced_at_commit() {
    let lost = violations(SyncFault::LogNotSynced);
    let lost = lost.filter(|violation| matches!(violation, Violation::SpendLost(_))).count();
    assert!(lost >= 10, "{lost} of {FAULTY_SEEDS} seeds");
}

#[test]
fn corrupts_database_if_it_is_not_synced_at_checkpoint() {
    let corrupt = violations(SyncFault::DatabaseNotSynced).count();
    assert!(corrupt >= 5, "{corrupt} of {FAULTY_SEEDS} seeds");
}

fn violations(sync_fault: SyncFault) -> impl Iterator<Item = Violation> {
    (1..=FAULTY_SEEDS).filter_map(move |seed| run(seed, sync_fault).err())
}
