//! The accounts in memory.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use std::sync::Arc;

use enrich_interleavings::{end, explore, hold, workspace};
use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::memory::AccountTable;
use enrich_lib::ports::Credits;
use shuttle::future::block_on;
use shuttle::thread;

const SCHEDULES: usize = 10_000;

/// Returns a table with a workspace of 3 credits.
fn table() -> Arc<AccountTable> {
    let table = AccountTable::default();
    table.grant(&workspace(), 3).unwrap();
    Arc::new(table)
}

fn check(table: &AccountTable) -> Balance {
    let balance = table.balance(&workspace());
    assert_eq!(balance.granted, balance.available + balance.held + balance.spent, "{balance:?}");
    balance
}

fn is_granted(table: &AccountTable, hold: &Hold) -> bool {
    let holding = block_on(table.hold(hold)).unwrap();
    check(table);
    holding == HoldOutcome::Granted
}

fn settles(table: &AccountTable, hold: &Hold, settlement: Settlement) -> bool {
    let is_settled = block_on(table.settle(hold, settlement)).is_ok();
    check(table);
    is_settled
}

/// Runs `acts` concurrently and returns the results.
fn together<T: Send + 'static>(table: &Arc<AccountTable>, acts: &[fn(&AccountTable) -> T]) -> Vec<T> {
    let spawn = |act: &fn(&AccountTable) -> T| {
        let (table, act) = (table.clone(), *act);
        thread::spawn(move || act(&table))
    };
    let threads: Vec<_> = acts.iter().map(spawn).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn no_more_is_held_than_there_is() {
    explore(SCHEDULES, || {
        let table = table();
        let granted = together(
            &table,
            &[
                |table| u64::from(is_granted(table, &hold(1, 2))) * 2,
                |table| u64::from(is_granted(table, &hold(2, 2))) * 2,
                |table| u64::from(is_granted(table, &hold(3, 1))),
                |table| u64::from(is_granted(table, &hold(4, 1))),
            ],
        );
        let held = granted.iter().sum();
        assert_eq!(check(&table), Balance { granted: 3, available: 3 - held, held, spent: 0 });
        assert!(held >= 2, "who was refused wanted more than is left");
    });
}

#[test]
fn what_is_spent_at_once_is_all_spent() {
    explore(SCHEDULES, || {
        let table = table();
        fn spend(table: &AccountTable, n: u8) -> u64 {
            let hold = hold(n, 1);
            u64::from(is_granted(table, &hold) && settles(table, &hold, Settlement::Spend(1)))
        }
        let spent = together(&table, &[|t| spend(t, 1), |t| spend(t, 2), |t| spend(t, 3), |t| spend(t, 4)]);
        assert_eq!(spent.iter().sum::<u64>(), 3);
        assert_eq!(check(&table), Balance { granted: 3, available: 0, held: 0, spent: 3 });
    });
}

#[test]
fn a_hold_that_is_spent_and_released_and_expires_at_once_ends_once() {
    explore(SCHEDULES, || {
        let table = table();
        assert!(is_granted(&table, &hold(1, 2)));
        let settled = together(
            &table,
            &[
                |table| settles(table, &hold(1, 2), Settlement::Spend(1)),
                |table| settles(table, &hold(1, 2), Settlement::Spend(1)),
                |table| settles(table, &hold(1, 2), Settlement::Release),
                |table| {
                    table.advance(end());
                    check(table);
                    true
                },
            ],
        );
        let spent = u64::from(settled[0]);
        assert_eq!(settled[0], settled[1], "both are told the same");
        assert_eq!(settled[2], !settled[0], "of a spend and a release, or its expiry, one wins");
        assert_eq!(check(&table), Balance { granted: 3, available: 3 - spent, held: 0, spent });
    });
}

#[test]
fn credits_that_come_free_are_held_by_one_of_those_who_want_them() {
    explore(SCHEDULES, || {
        let table = table();
        assert!(is_granted(&table, &hold(1, 3)));
        let granted = together(
            &table,
            &[
                |table| settles(table, &hold(1, 3), Settlement::Release),
                |table| is_granted(table, &hold(2, 2)),
                |table| is_granted(table, &hold(3, 2)),
                |table| table.grant(&workspace(), 1).is_ok(),
            ],
        );
        let held = 2 * granted[1..3].iter().filter(|granted| **granted).count() as u64;
        assert_eq!(check(&table), Balance { granted: 4, available: 4 - held, held, spent: 0 });
    });
}
