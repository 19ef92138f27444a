//! Runs with random requests and faults. `SIM_SEEDS=n` sets the number of runs.

#![allow(clippy::print_stdout, reason = "a soak wants to know what it has seen")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use enrich_sim::{Plan, Run, StoreKind, World, each_seed, seeds};

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
fn two_nodes_keep_the_invariants_whatever_fails() {
    let seen = all_hold(SEEDS, |seed| Plan::draw(seed, StoreKind::Memory));
    // Guards against plans that no longer produce some of the statuses.
    if seen.runs >= SEEDS {
        assert_eq!(seen.statuses, BTreeSet::from([200, 400, 401, 402, 404, 429, 500, 502, 503]));
    }
}

#[test]
fn millisecond_by_millisecond_they_hold_too() {
    let tick = Duration::from_millis(1);
    all_hold(FINE_SEEDS, |seed| Plan { tick, ..Plan::draw(seed, StoreKind::Memory) });
}

#[test]
fn a_node_on_sqlite_keeps_the_invariants_whatever_fails() {
    all_hold(SQLITE_SEEDS, |seed| Plan::draw(seed, StoreKind::Sqlite));
}

#[test]
fn two_to_five_nodes_on_servers_keep_the_invariants_whatever_fails() {
    all_hold(SERVER_SEEDS, |seed| Plan::draw(seed, on_servers(seed)));
}

#[test]
fn on_servers_they_hold_millisecond_by_millisecond_too() {
    let tick = Duration::from_millis(1);
    all_hold(FINE_SERVER_SEEDS, |seed| Plan { tick, ..Plan::draw(seed, on_servers(seed)) });
}

/// Returns stores on servers with two to five nodes, depending on the seed.
fn on_servers(seed: u64) -> StoreKind {
    StoreKind::Servers(2 + usize::try_from(seed % 4).expect("a few"))
}

fn all_hold(default: u64, plan: impl Fn(u64) -> Plan + Sync) -> Seen {
    let seen = Mutex::new(Seen::default());
    each_seed(seeds(default), |seed| {
        let run = World::run(&plan(seed)).check();
        seen.lock().expect("nobody panics with it").add(&run);
    });
    let seen = seen.into_inner().expect("nobody panics with it");
    println!("{seen:#?}");
    seen
}

/// Statistics of all runs.
#[derive(Debug, Default)]
struct Seen {
    runs: u64,
    simulated: Duration,
    troubles: BTreeMap<&'static str, u64>,
    requests: usize,
    lookups: usize,
    statuses: BTreeSet<u16>,
}

impl Seen {
    fn add(&mut self, run: &Run) {
        let statuses = run.statuses();
        self.runs += 1;
        self.simulated += run.trace.last().map_or(Duration::ZERO, |entry| entry.at);
        self.requests += statuses.len();
        self.lookups += run.stories().len();
        for trouble in &run.plan.troubles {
            *self.troubles.entry(trouble.what.kind()).or_default() += 1;
        }
        self.statuses.extend(statuses.into_iter().flatten());
    }
}
