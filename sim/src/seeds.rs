//! Selects the seeds of a test and runs them in parallel.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The default number of seeds of the largest test.
const SEEDS_MAX: u64 = 2_000;

/// Returns the seeds to run: by default `1..=default`.
///
/// `SIM_SEED=n` selects the single seed `n`, to replay a run. `SIM_SEEDS=n` runs `n` seeds of the test that has 2,000 by
/// default, and scales the number of seeds of all other tests accordingly.
///
/// Panics if one of the variables is not a number.
pub fn seeds(default: u64) -> impl Iterator<Item = u64> + Send {
    match (number("SIM_SEED"), number("SIM_SEEDS")) {
        (Some(seed), _) => seed..=seed,
        (None, None) => 1..=default,
        (None, Some(max)) => 1..=(max.saturating_mul(default) / SEEDS_MAX).max(1),
    }
}

/// Runs all seeds on all cores. Stops taking new seeds after the first panic, and propagates the panic.
pub fn each_seed(seeds: impl Iterator<Item = u64> + Send, run: impl Fn(u64) + Sync) {
    let seeds = Mutex::new(Some(seeds));
    let remaining = || seeds.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        let next = || remaining().as_mut()?.next();
        while let Some(seed) = next() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
                *remaining() = None;
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
