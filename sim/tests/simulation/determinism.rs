//! Runs with the same seed produce identical traces.

use enrich_sim::{Plan, Run, World, each_seed, seeds};

/// Includes worlds on SQLite and on servers, and one with steps of 1 ms.
const SEEDS: u64 = 26;

#[test]
fn same_seed_gives_same_trace() {
    each_seed(seeds(SEEDS), |seed| run_twice(&Plan::from_seed(seed)));
}

fn run_twice(plan: &Plan) {
    let (first, second) = (World::with_plan(plan.clone()).run(), World::with_plan(plan.clone()).run());
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
