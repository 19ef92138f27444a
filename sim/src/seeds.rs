//! Selects seeds and runs them in parallel.

use std::env;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use parking_lot::Mutex;

use crate::shrink::Part;

/// Returns the seeds of a test: `1..=default`, or the single seed of the environment variable `SIM_SEED`, to
/// replay a run.
///
/// Panics if the variable is not a number.
pub fn seeds(default: u64) -> RangeInclusive<u64> {
    number("SIM_SEED").map_or(1..=default, |seed| seed..=seed)
}

/// Returns `default` seeds that no run has used before, or as many as the environment variable `SIM_SEEDS`
/// says. There are none if `SIM_SEED` replays a run.
///
/// Panics if a variable is not a number.
pub fn fresh_seeds(default: u64) -> RangeInclusive<u64> {
    let count = if number("SIM_SEED").is_some() { 0 } else { number("SIM_SEEDS").unwrap_or(default) };
    let start = u64::from(rand::random::<u32>()) + 1_000_000;
    start..=start + count - 1
}

/// Returns the parts of the environment variable `SIM_PARTS`, to repeat a shrunk run.
///
/// Panics if the variable is not a list of parts.
pub(crate) fn parts() -> Option<Vec<Part>> {
    let parts = env::var("SIM_PARTS").ok()?;
    Some(
        Part::parse_list(&parts)
            .unwrap_or_else(|part| panic!("SIM_PARTS: {part:?} is not a part such as f0")),
    )
}

/// Runs all seeds on all cores. Stops taking new seeds after the first panic, and propagates the panic.
pub fn each_seed(seeds: impl Iterator<Item = u64> + Send, run: impl Fn(u64) + Sync) {
    let seeds = Mutex::new(Some(seeds));
    let work = || {
        let next = || seeds.lock().as_mut()?.next();
        while let Some(seed) = next() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
                *seeds.lock() = None;
                resume_unwind(panic);
            }
        }
    };
    // Test threads are named after their test. The name appears in the failure report.
    let name = thread::current().name().unwrap_or_default().to_owned();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            let thread = thread::Builder::new().name(name.clone());
            thread.spawn_scoped(scope, work).expect("cannot start a thread");
        }
    });
}

/// Reads a number from the environment. Panics on invalid text rather than falling back to the default.
fn number(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
