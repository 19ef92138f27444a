//! Runs with the same seed produce identical traces.

use std::time::Duration;

use enrich_sim::{Plan, Run, StoreKind, World, each_seed, seeds};

const SEEDS: u64 = 50;

const SQLITE_SEEDS: u64 = 25;

const SERVER_SEEDS: u64 = 25;

const FINE_SEEDS: u64 = 5;

#[test]
fn the_same_seed_is_the_same_run_in_memory() {
    each_seed(seeds(SEEDS), |seed| run_twice(&Plan::draw(seed, StoreKind::Memory)));
}

#[test]
fn the_same_seed_is_the_same_run_on_sqlite() {
    each_seed(seeds(SQLITE_SEEDS), |seed| run_twice(&Plan::draw(seed, StoreKind::Sqlite)));
}

#[test]
fn the_same_seed_is_the_same_run_millisecond_by_millisecond() {
    let tick = Duration::from_millis(1);
    each_seed(seeds(FINE_SEEDS), |seed| run_twice(&Plan { tick, ..Plan::draw(seed, StoreKind::Memory) }));
}

#[test]
fn the_same_seed_is_the_same_run_on_servers() {
    each_seed(seeds(SERVER_SEEDS), |seed| {
        let nodes = 2 + usize::try_from(seed % 4).expect("a few");
        run_twice(&Plan::draw(seed, StoreKind::Servers(nodes)));
    });
}

#[test]
fn another_seed_is_another_run() {
    let hash = |seed| World::run(&Plan::draw(seed, StoreKind::Memory)).hash();
    assert_ne!(hash(1), hash(2));
}

fn run_twice(plan: &Plan) {
    let (first, second) = (World::run(plan), World::run(plan));
    if first.hash() != second.hash() {
        let seed = plan.seed;
        panic!("seed {seed} has two runs, and here they part:\n{}", first_difference(&first, &second));
    }
}

fn first_difference(first: &Run, second: &Run) -> String {
    let (first, second) = (first.lines(), second.lines());
    let at = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    let line = |lines: &[String]| lines.get(at).cloned().unwrap_or("(the end)".to_owned());
    format!("line {}\n    {}\n    {}", at + 1, line(&first), line(&second))
}
