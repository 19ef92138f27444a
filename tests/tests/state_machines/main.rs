//! Steps in any order, with crashes and repeated requests among them: what the product answers after each, and how it
//! stands, is what a model says.
//!
//! A run has 200,000 cases. `STATE_MACHINE_CASES=n` is for `n` of them, shared out among the machines in the same
//! proportions. A case that fails is printed with as few steps as fail; it is to become a named test of its own.

#![allow(clippy::unwrap_used, reason = "everything here is a test, where a panic is the report")]

mod accounts;

mod book;

mod disk;

mod ledger;

mod windows;

use std::env;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use proptest::test_runner::Config;
use proptest_state_machine::prop_state_machine;

use crate::accounts::AccountMachine;
use crate::ledger::LedgerMachine;
use crate::windows::WindowsMachine;

const CASES: u64 = 200_000;

const WINDOWS_CASES: u64 = 90_000;

const ACCOUNT_CASES: u64 = 90_000;

const LEDGER_CASES: u64 = 20_000;

const _: () = assert!(WINDOWS_CASES + ACCOUNT_CASES + LEDGER_CASES == CASES);

prop_state_machine! {
    #![proptest_config(config(WINDOWS_CASES))]

    #[test]
    fn no_window_lets_through_more_than_its_limit(sequential 1..60 => WindowsMachine);
}

prop_state_machine! {
    #![proptest_config(config(ACCOUNT_CASES))]

    #[test]
    fn an_account_stands_as_its_book_and_no_crash_loses_or_adds_a_spend(sequential 1..60 => AccountMachine);
}

prop_state_machine! {
    #![proptest_config(config(LEDGER_CASES))]

    #[test]
    fn a_ledger_charges_what_it_told_and_nothing_else(sequential 1..30 => LedgerMachine);
}

/// A machine's share of all cases.
fn config(share: u64) -> Config {
    let all = env::var("STATE_MACHINE_CASES").map_or(CASES, |text| {
        text.parse().unwrap_or_else(|_| panic!("STATE_MACHINE_CASES is a number, not {text:?}"))
    });
    let cases = (all * share).div_ceil(CASES).try_into().unwrap_or(u32::MAX);
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// One step of a future that nobody wakes.
fn poll<T>(mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// What is answered without waiting for anything.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match poll(std::pin::pin!(future)) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}
