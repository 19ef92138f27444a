//! Selection of the seeds to run.

use std::env;

/// Power cuts in the run of one seed.
pub(crate) const CUTS_PER_SEED: u64 = 5;

/// Returns the seeds to run: with `POWER_SEED=n`, only seed `n`, to reproduce a run. With `POWER_CUTS=n`,
/// enough seeds for `n` cuts; otherwise enough for `default` cuts.
pub(crate) fn seeds(default: u64) -> impl Iterator<Item = u64> {
    match (number("POWER_SEED"), number("POWER_CUTS")) {
        (Some(seed), _) => seed..=seed,
        (None, cuts) => 1..=cuts.unwrap_or(default).div_ceil(CUTS_PER_SEED),
    }
}

/// Reads a number from the environment. Panics if the value is not a number, instead of using the default.
fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
