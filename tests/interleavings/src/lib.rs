//! Tests of concurrent code in many orders of its steps.
//!
//! `explore` runs a test once a schedule. Its threads are `shuttle`'s: one runs at a time, and at each lock and each
//! operation of a channel a scheduler picks the next. There are two schedulers: one picks at random at every step, the
//! other (PCT) lets one thread run on and interrupts it at a few steps, as races often need few of them. Both
//! start from a fixed seed, so a test that fails does so in every run, and a thread that nobody wakes is a deadlock
//! that is reported.
//!
//! ```sh
//! RUSTFLAGS='--cfg shuttle' cargo test -p enrich-interleavings --target-dir target/shuttle
//! ```
//!
//! `SCHEDULES=100000` tries more of them, `SHUTTLE_RANDOM_SEED=7` others. A failure prints its schedule: with that in
//! `REPLAY`, the test runs this one alone.

#![cfg(shuttle)]

use std::env;
use std::panic::{self, AssertUnwindSafe};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

mod scene;

pub use scene::{
    Answer, Ended, GRANTED, Left, START, Scene, Spender, end, hold, key, poll, workspace, write,
};

const SEED: u64 = 0x5eed;

/// How often PCT interrupts a thread: a race that needs more of that is left to chance.
const INTERRUPTIONS: usize = 3;

/// The most steps of one schedule. The longest takes a tenth of them, so one that takes more is stuck.
const STEPS_MAX: usize = 10_000;

/// SQLite needs more than the default.
const STACK_BYTES: usize = 512 * 1024;

/// Runs `test` in `schedules` random schedules and in as many of PCT's. `SCHEDULES` sets another number.
pub fn explore(schedules: usize, test: fn()) {
    if let Ok(schedule) = env::var("REPLAY") {
        run(ReplayScheduler::new_from_encoded(&schedule), test);
        return;
    }
    let asked = env::var("SCHEDULES").ok().map(|n| n.parse().expect("SCHEDULES is a number"));
    let schedules = asked.unwrap_or(schedules);
    run(RandomScheduler::new_from_seed(SEED, schedules), test);
    run(PctScheduler::new_from_seed(SEED, INTERRUPTIONS, schedules), test);
}

#[expect(clippy::print_stderr, reason = "where a failed test's schedule is printed, too")]
fn run(scheduler: impl Scheduler + 'static, test: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config).run(test)));
    if let Err(failure) = outcome {
        eprintln!(
            "to replay it: REPLAY='the schedule above' RUSTFLAGS='--cfg shuttle' cargo test -p enrich-interleavings --target-dir target/shuttle NAME_OF_THE_TEST"
        );
        panic::resume_unwind(failure);
    }
}
