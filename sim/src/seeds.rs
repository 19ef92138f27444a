//! Which seeds a test runs, and on how many cores.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// How many seeds the widest test runs by default.
const WIDEST: u64 = 2_000;

/// `SIM_SEED=n` is the one seed `n`, to see a run again; `SIM_SEEDS=n` are `n` seeds of the test that by default runs
/// 2,000, and as much more or less of every other; without them, the first `default`.
pub fn seeds(default: u64) -> impl Iterator<Item = u64> + Send {
    match (number("SIM_SEED"), number("SIM_SEEDS")) {
        (Some(seed), _) => seed..=seed,
        (None, None) => 1..=default,
        (None, Some(widest)) => 1..=(widest.saturating_mul(default) / WIDEST).max(1),
    }
}

/// Runs each of the seeds, on all cores; and none any more once one of them panics.
pub fn each_seed(seeds: impl Iterator<Item = u64> + Send, run: impl Fn(u64) + Sync) {
    let seeds = Mutex::new(Some(seeds));
    let left = || seeds.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        let next = || left().as_mut()?.next();
        while let Some(seed) = next() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
                *left() = None;
                resume_unwind(panic);
            }
        }
    };
    // A test's thread has the test's name, and a failure tells it.
    let name = thread::current().name().unwrap_or_default().to_owned();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            let thread = thread::Builder::new().name(name.clone());
            thread.spawn_scoped(scope, work).expect("a machine has threads");
        }
    });
}

/// A number in the environment. A text that is none is a mistake, and not to be taken for the default.
fn number(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}
