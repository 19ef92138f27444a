//! Runs with the same seed produce identical traces.

use enrich_sim::{Run, World, each_seed, seeds};

/// Includes worlds on SQLite and on servers, and one with steps of 1 ms.
const SEEDS: u64 = 26;

#[test]
fn same_seed_gives_same_trace() {
    each_seed(seeds(SEEDS), |seed| {
        let (first, second) = (World::new(seed).run(), World::new(seed).run());
        if first.hash() != second.hash() {
            panic!("two runs of seed {seed} differ:\n{}", first_difference(&first, &second));
        }
    });
}

fn first_difference(first: &Run, second: &Run) -> String {
    let (first, second) = (first.lines(), second.lines());
    let index = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    let line = |lines: &[String]| lines.get(index).cloned().unwrap_or("(end of the trace)".to_owned());
    format!("line {}\n    {}\n    {}", index + 1, line(&first), line(&second))
}
