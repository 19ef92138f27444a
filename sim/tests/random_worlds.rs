//! Runs in which anything may happen. `SIM_SEEDS=n` makes it more of them.

#![cfg(feature = "sim")]

use std::collections::BTreeSet;

use enrich_sim::{Plan, StoreKind, World, seeds};

const SEEDS: u64 = 200;

/// SQLite waits for the disk, and has one node: fewer runs tell as much.
const SQLITE_SEEDS: u64 = 50;

#[test]
fn two_nodes_keep_the_invariants_whatever_fails() {
    let mut seen = BTreeSet::new();
    let mut runs = 0;
    for seed in seeds(SEEDS) {
        let run = World::run(&Plan::draw(seed, StoreKind::Memory)).check();
        seen.extend(run.statuses().into_iter().flatten());
        runs += 1;
    }
    // What never happens is not tested.
    if runs >= SEEDS {
        assert_eq!(seen, BTreeSet::from([200, 400, 401, 402, 404, 429, 500, 502, 503]));
    }
}

#[test]
fn a_node_on_sqlite_keeps_the_invariants_whatever_fails() {
    for seed in seeds(SQLITE_SEEDS) {
        World::run(&Plan::draw(seed, StoreKind::Sqlite)).check();
    }
}
