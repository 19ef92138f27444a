//! State machine tests: random steps, including crashes and repeated requests. After each step, the result
//! and the state must match a model.
//!
//! A run has 200,000 cases. `STATE_MACHINE_CASES=n` runs `n` cases, divided among the machines in the same
//! proportions. A failing case is shrunk to a minimal sequence of steps and printed. Add a named test for it.

mod accounts;

mod model;

mod disk;

mod ledger;

mod windows;

use std::env;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use proptest::test_runner::{Config, RngAlgorithm};
use proptest_state_machine::prop_state_machine;

use self::accounts::AccountMachine;
use self::ledger::LedgerMachine;
use self::windows::WindowsMachine;

const CASES: u64 = 200_000;

const WINDOWS_CASES: u64 = 90_000;

const ACCOUNT_CASES: u64 = 90_000;

const LEDGER_CASES: u64 = 20_000;

const _: () = assert!(WINDOWS_CASES + ACCOUNT_CASES + LEDGER_CASES == CASES);

prop_state_machine! {
    #![proptest_config(config(WINDOWS_CASES))]

    #[test]
    fn no_window_exceeds_its_limit(sequential 1..60 => WindowsMachine);
}

prop_state_machine! {
    #![proptest_config(config(ACCOUNT_CASES))]

    #[test]
    fn account_matches_its_model_across_crashes(sequential 1..60 => AccountMachine);
}

prop_state_machine! {
    #![proptest_config(config(LEDGER_CASES))]

    #[test]
    fn ledger_charges_exactly_the_acknowledged_spends(sequential 1..30 => LedgerMachine);
}

/// Returns a configuration with a machine's share of all cases.
fn config(share: u64) -> Config {
    let all = env::var("STATE_MACHINE_CASES").map_or(CASES, |text| {
        text.parse().unwrap_or_else(|_| panic!("STATE_MACHINE_CASES is a number, not {text:?}"))
    });
    let cases = (all * share).div_ceil(CASES).try_into().unwrap_or(u32::MAX);
    // Proptest seeds a generator for each step. With the default algorithm, that takes half of the time.
    Config { cases, failure_persistence: None, rng_algorithm: RngAlgorithm::XorShift, ..Config::default() }
}

/// Polls a future once, with a waker that does nothing.
fn poll<T>(mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the output of a future that completes on its first poll. Panics if it is pending.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match poll(std::pin::pin!(future)) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the future is pending"),
    }
}
