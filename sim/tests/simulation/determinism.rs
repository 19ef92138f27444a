//! Runs with the same seed produce identical traces.

use std::time::Duration;

use enrich_sim::{Plan, Run, Simulation, StoreKind, each_seed, seeds};

const SEEDS: u64 = 50;

const SQLITE_SEEDS: u64 = 25;

const SERVER_SEEDS: u64 = 25;

const FINE_SEEDS: u64 = 5;

#[test]
fn same_seed_gives_same_trace_in_memory() {
    each_seed(seeds(SEEDS), |seed| run_twice(&Plan::draw(seed, StoreKind::Memory)));
}

#[test]
fn same_seed_gives_same_trace_on_sqlite() {
    each_seed(seeds(SQLITE_SEEDS), |seed| run_twice(&Plan::draw(seed, StoreKind::Sqlite)));
}

#[test]
fn same_seed_gives_same_trace_with_1_ms_steps() {
    let tick = Duration::from_millis(1);
    each_seed(seeds(FINE_SEEDS), |seed| run_twice(&Plan { tick, ..Plan::draw(seed, StoreKind::Memory) }));
}

#[test]
fn same_seed_gives_same_trace_on_servers() {
    each_seed(seeds(SERVER_SEEDS), |seed| {
        let nodes = 2 + usize::try_from(seed % 4).expect("fits");
        run_twice(&Plan::draw(seed, StoreKind::Servers(nodes)));
    });
}

fn run_twice(plan: &Plan) {
    let (first, second) = (Simulation::run(plan), Simulation::run(plan));
    if first.hash() != second.hash() {
        let seed = plan.seed;
        panic!("two runs of seed {seed} differ:\n{}", first_difference(&first, &second));
    }
}

fn first_difference(first: &Run, second: &Run) -> String {
    let (first, second) = (first.lines(), second.lines());
    let index = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    let line = |lines: &[String]| lines.get(index).cloned().unwrap_or("(end of the trace)".to_owned());
    format!("line {}\n    {}\n    {}", index + 1, line(&first), line(&second))
}
