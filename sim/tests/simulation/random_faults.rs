//! Runs with random requests and faults. `SIM_SEEDS=n` sets the number of runs.

#![allow(clippy::print_stdout, reason = "prints the statistics of a long run")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use enrich_sim::{Plan, Run, Simulation, StoreKind, each_seed, seeds};

/// `SIM_SEEDS` overrides this number and scales the others accordingly.
const SEEDS: u64 = 2_000;

/// With steps of 1 ms, a run has ten times as many steps and a finer order of events.
const FINE_SEEDS: u64 = 100;

/// SQLite waits for the disk and has only one node, so fewer runs are enough.
const SQLITE_SEEDS: u64 = 100;

/// Up to five nodes and two servers make each step slower.
const SERVER_SEEDS: u64 = 500;
const FINE_SERVER_SEEDS: u64 = 10;

#[test]
fn two_nodes_keep_invariants_under_random_faults() {
    let statistics = check_invariants(SEEDS, |seed| Plan::draw(seed, StoreKind::Memory));
    // Guards against plans that no longer produce some of the statuses.
    if statistics.runs >= SEEDS {
        assert_eq!(statistics.statuses, BTreeSet::from([200, 400, 401, 402, 404, 429, 500, 502, 503]));
    }
}

#[test]
fn two_nodes_keep_invariants_with_1_ms_steps() {
    let tick = Duration::from_millis(1);
    check_invariants(FINE_SEEDS, |seed| Plan { tick, ..Plan::draw(seed, StoreKind::Memory) });
}

#[test]
fn sqlite_node_keeps_invariants_under_random_faults() {
    check_invariants(SQLITE_SEEDS, |seed| Plan::draw(seed, StoreKind::Sqlite));
}

#[test]
fn nodes_on_servers_keep_invariants_under_random_faults() {
    check_invariants(SERVER_SEEDS, |seed| Plan::draw(seed, on_servers(seed)));
}

#[test]
fn nodes_on_servers_keep_invariants_with_1_ms_steps() {
    let tick = Duration::from_millis(1);
    check_invariants(FINE_SERVER_SEEDS, |seed| Plan { tick, ..Plan::draw(seed, on_servers(seed)) });
}

/// Returns stores on servers with two to five nodes, depending on the seed.
fn on_servers(seed: u64) -> StoreKind {
    StoreKind::Servers(2 + usize::try_from(seed % 4).expect("fits"))
}

fn check_invariants(default: u64, plan: impl Fn(u64) -> Plan + Sync) -> Statistics {
    let statistics = Mutex::new(Statistics::default());
    each_seed(seeds(default), |seed| {
        let run = Simulation::run(&plan(seed)).check();
        statistics.lock().expect("not poisoned").add(&run);
    });
    let statistics = statistics.into_inner().expect("not poisoned");
    println!("{statistics:#?}");
    statistics
}

/// Statistics of all runs.
#[derive(Debug, Default)]
struct Statistics {
    runs: u64,
    simulated: Duration,
    faults: BTreeMap<&'static str, u64>,
    requests: usize,
    lookups: usize,
    statuses: BTreeSet<u16>,
}

impl Statistics {
    fn add(&mut self, run: &Run) {
        let statuses = run.statuses();
        self.runs += 1;
        self.simulated += run.trace.last().map_or(Duration::ZERO, |entry| entry.at);
        self.requests += statuses.len();
        self.lookups += run.lookups().len();
        for fault in &run.plan.faults {
            *self.faults.entry(fault.kind.name()).or_default() += 1;
        }
        self.statuses.extend(statuses.into_iter().flatten());
    }
}
