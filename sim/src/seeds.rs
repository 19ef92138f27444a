//! Which seeds a test runs.

use std::env;

/// `SIM_SEED=n` is the one seed `n`, to see a run again; `SIM_SEEDS=n` are the first `n` seeds, to see more; without
/// them, the first `default`.
pub fn seeds(default: u64) -> impl Iterator<Item = u64> {
    match (number("SIM_SEED"), number("SIM_SEEDS")) {
        (Some(seed), _) => seed..=seed,
        (None, seeds) => 1..=seeds.unwrap_or(default),
    }
}

/// A number in the environment. A text that is none is a mistake, and not to be taken for the default.
fn number(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}
