//! Random worlds. The seeds are a fixed range and a fresh one, whose start is printed. `SIM_SEEDS=n` sets the
//! number of fresh seeds, and `SIM_SEED=n` repeats one world.

use std::io::{Write, stderr};
use std::sync::Mutex;

use enrich_sim::{Coverage, World, each_seed, fresh_seeds, seeds};

const FIXED_SEEDS: u64 = 300;
const FRESH_SEEDS: u64 = 50;

/// Seeds of worlds that violated an invariant before, one per line, each with what was wrong.
const REGRESSIONS: &str = include_str!("../../regressions");

#[test]
fn worlds_keep_all_invariants() {
    let coverage = Mutex::new(Coverage::default());
    let (fixed, fresh) = (seeds(FIXED_SEEDS), fresh_seeds(FRESH_SEEDS));
    let all = fixed.clone().chain(fresh.clone());
    let is_whole = fixed.clone().count() > 1;
    each_seed(all, |seed| {
        let run = World::new(seed).run().check();
        coverage.lock().expect("not poisoned").add(&run);
    });
    let coverage = coverage.into_inner().expect("not poisoned");
    // Not captured by the test harness.
    let summary = format!("\nsimulation: all invariants hold\nseeds: {fixed:?}, {fresh:?}\n{coverage}\n");
    stderr().write_all(summary.as_bytes()).expect("stderr is writable");
    let missing = coverage.missing();
    assert!(missing.is_empty() || !is_whole, "never occurred: {}", missing.join(", "));
}

#[test]
fn worlds_that_failed_before_keep_all_invariants() {
    let seeds = REGRESSIONS.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let seed = line.split_whitespace().next().expect("a seed");
        seed.parse().expect("a number")
    });
    each_seed(seeds.collect::<Vec<u64>>().into_iter(), |seed| drop(World::new(seed).run().check()));
}
