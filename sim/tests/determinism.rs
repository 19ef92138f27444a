//! A seed is a run: the same one, down to the last line.

#![cfg(feature = "sim")]

use enrich_sim::{Plan, Run, StoreKind, World, seeds};

const SEEDS: u64 = 25;

#[test]
fn the_same_seed_is_the_same_run_in_memory() {
    seeds(SEEDS).for_each(|seed| run_twice(seed, StoreKind::Memory));
}

#[test]
fn the_same_seed_is_the_same_run_on_sqlite() {
    seeds(SEEDS).for_each(|seed| run_twice(seed, StoreKind::Sqlite));
}

#[test]
fn another_seed_is_another_run() {
    let hash = |seed| World::run(&Plan::draw(seed, StoreKind::Memory)).hash();
    assert_ne!(hash(1), hash(2));
}

fn run_twice(seed: u64, stores: StoreKind) {
    let plan = Plan::draw(seed, stores);
    let (first, second) = (World::run(&plan), World::run(&plan));
    if first.hash() != second.hash() {
        panic!("seed {seed} has two runs, and here they part:\n{}", first_difference(&first, &second));
    }
}

fn first_difference(first: &Run, second: &Run) -> String {
    let (first, second) = (first.lines(), second.lines());
    let at = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    let line = |lines: &[String]| lines.get(at).cloned().unwrap_or("(the end)".to_owned());
    format!("line {}\n    {}\n    {}", at + 1, line(&first), line(&second))
}
