//! Tests of concurrent code under many thread interleavings.
//!
//! `explore` runs a test once per schedule. The threads of a test are `shuttle`'s: one runs at a time, and at
//! each lock and each channel operation a scheduler picks the next. There are two schedulers. One picks at
//! random at every step. The other (PCT) lets one thread continue and interrupts it at a few steps, because
//! races often need few interruptions. Both start from a fixed seed, so a failure is reproducible. A thread
//! that is never woken is reported as a deadlock.
//!
//! ```sh
//! RUSTC_WORKSPACE_WRAPPER=$PWD/tests/interleavings/rustc cargo test -p enrich-interleavings
//! ```
//!
//! `SCHEDULES=100000` sets the number of schedules, `SHUTTLE_RANDOM_SEED=7` the seed. A failure prints its
//! schedule. To run a test with that schedule only, set `REPLAY` to it.

#![cfg(shuttle)]

use std::env;
use std::panic::{self, AssertUnwindSafe};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

mod fixture;

pub use fixture::{
    GRANTED, HOLD_TTL, LedgerFixture, RemainingData, START, SpendOutcome, SpendResult, TestLookup, expiry,
    hold, key, poll, spawn_writer, workspace,
};

const SEED: u64 = 0x5eed;

/// Number of times that PCT interrupts a thread. Races that need more interruptions are left to the random
/// scheduler.
const PREEMPTIONS: usize = 3;

/// Maximum number of steps in a schedule. The longest one takes a tenth of it, so a schedule that exceeds it
/// is stuck.
const STEPS_MAX: usize = 10_000;

/// Stack size of a thread. SQLite needs more than the default.
const STACK_BYTES: usize = 512 * 1024;

/// Runs `test` with `schedules` random schedules and as many PCT schedules. `SCHEDULES` overrides the number.
pub fn explore(schedules: usize, test: fn()) {
    if let Ok(schedule) = env::var("REPLAY") {
        run(ReplayScheduler::new_from_encoded(&schedule), test);
        return;
    }
    let schedules = match env::var("SCHEDULES") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("SCHEDULES must be a number, not {text:?}")),
        Err(_) => schedules,
    };
    run(RandomScheduler::new_from_seed(SEED, schedules), test);
    run(PctScheduler::new_from_seed(SEED, PREEMPTIONS, schedules), test);
}

#[expect(clippy::print_stderr, reason = "shuttle prints the schedule there")]
fn run(scheduler: impl Scheduler + 'static, test: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config).run(test)));
    if let Err(failure) = outcome {
        eprintln!(
            "to replay the schedule above:\n    REPLAY=SCHEDULE RUSTC_WORKSPACE_WRAPPER=$PWD/tests/interleavings/rustc cargo test -p enrich-interleavings TEST"
        );
        panic::resume_unwind(failure);
    }
}
