//! Which seeds a test runs.

use std::env;

use crate::history::CUTS_OF_A_SEED;

/// `POWER_SEED=n` is the one seed `n`, to see a run again; `POWER_CUTS=n` are as many seeds as have `n` cuts; without
/// them, as many as have `default` cuts.
pub(crate) fn seeds(default: u64) -> impl Iterator<Item = u64> {
    match (number("POWER_SEED"), number("POWER_CUTS")) {
        (Some(seed), _) => seed..=seed,
        (None, cuts) => 1..=cuts.unwrap_or(default).div_ceil(CUTS_OF_A_SEED),
    }
}

/// A number in the environment. A text that is none is a mistake, and not to be taken for the default.
fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}
