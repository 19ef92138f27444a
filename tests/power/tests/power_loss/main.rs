//! Acknowledged changes are durable, whenever the power is cut.
//!
//! `POWER_CUTS=n` sets the number of cuts, `POWER_SEED=n` runs one seed again.

#![allow(clippy::unwrap_used, reason = "everything here is a test, where a panic is the report")]

mod books;

mod history;

mod life;

mod seeds;

use enrich_power::Lie;

use crate::books::Broken;
use crate::history::{CUTS_OF_A_SEED, Tally, run};
use crate::seeds::seeds;

const CUTS: u64 = 2_000;

#[test]
fn whatever_was_told_is_there_after_every_cut() {
    let mut tally = Tally::default();
    for seed in seeds(CUTS) {
        match run(seed, Lie::None) {
            Ok(more) => tally.add(&more),
            Err(broken) => {
                panic!("{broken}\nto see it again:\n    POWER_SEED={seed} cargo test -p enrich-power")
            }
        }
    }
    if tally.cuts >= CUTS {
        tally.assert_that_all_was_tried();
    }
}

#[test]
fn a_seed_runs_the_same_again() {
    for seed in 1..=20 {
        assert_eq!(run(seed, Lie::None).unwrap(), run(seed, Lie::None).unwrap());
    }
}

#[test]
fn with_synchronous_normal_spends_that_were_told_are_lost() {
    let lost = broken(Lie::Commits).filter(|broken| matches!(broken, Broken::SpendLost(_))).count();
    assert!(lost >= 10, "{lost} of {SEEDS_OF_A_LIE} seeds");
}

#[test]
fn without_the_syncs_of_a_checkpoint_the_database_is_lost() {
    let corrupt = broken(Lie::Checkpoints).count();
    assert!(corrupt >= 5, "{corrupt} of {SEEDS_OF_A_LIE} seeds");
}

const SEEDS_OF_A_LIE: u64 = 100 / CUTS_OF_A_SEED;

fn broken(lie: Lie) -> impl Iterator<Item = Broken> {
    (1..=SEEDS_OF_A_LIE).filter_map(move |seed| run(seed, lie).err())
}
