//! The accounts in memory.

use std::sync::Arc;

use enrich_interleavings::{HOLD_TTL, explore, hold, workspace};
use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::memory::AccountTable;
use enrich_lib::ports::Credits;
use shuttle::future::block_on;
use shuttle::thread;

const SCHEDULES: usize = 5_000;

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
    let outcome = block_on(table.hold(hold)).unwrap();
    check(table);
    outcome == HoldOutcome::Granted
}

fn settles(table: &AccountTable, hold: &Hold, settlement: Settlement) -> bool {
    let is_settled = block_on(table.settle(hold, settlement)).is_ok();
    check(table);
    is_settled
}

/// Runs `actions` concurrently and returns the results.
fn run_concurrently<T: Send + 'static>(
    table: &Arc<AccountTable>,
    actions: &[fn(&AccountTable) -> T],
) -> Vec<T> {
    let spawn = |action: &fn(&AccountTable) -> T| {
        let (table, action) = (table.clone(), *action);
        thread::spawn(move || action(&table))
    };
    let threads: Vec<_> = actions.iter().map(spawn).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn never_holds_more_than_available() {
    explore(SCHEDULES, || {
        let table = table();
        let granted = run_concurrently(
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
        assert!(held >= 2, "a hold was refused although the credits suffice");
    });
}

#[test]
fn concurrent_spends_are_all_charged() {
    explore(SCHEDULES, || {
        let table = table();
        fn spend(table: &AccountTable, n: u8) -> u64 {
            let hold = hold(n, 1);
            u64::from(is_granted(table, &hold) && settles(table, &hold, Settlement::Spend(1)))
        }
        let spent =
            run_concurrently(&table, &[|t| spend(t, 1), |t| spend(t, 2), |t| spend(t, 3), |t| spend(t, 4)]);
        assert_eq!(spent.iter().sum::<u64>(), 3);
        assert_eq!(check(&table), Balance { granted: 3, available: 0, held: 0, spent: 3 });
    });
}

#[test]
fn concurrent_spend_release_and_expiry_end_hold_once() {
    explore(SCHEDULES, || {
        let table = table();
        assert!(is_granted(&table, &hold(1, 2)));
        let settled = run_concurrently(
            &table,
            &[
                |table| settles(table, &hold(1, 2), Settlement::Spend(1)),
                |table| settles(table, &hold(1, 2), Settlement::Spend(1)),
                |table| settles(table, &hold(1, 2), Settlement::Release),
                |table| {
                    table.advance(HOLD_TTL);
                    check(table);
                    true
                },
            ],
        );
        let spent = u64::from(settled[0]);
        assert_eq!(settled[0], settled[1], "both attempts return the same result");
        assert_eq!(settled[2], !settled[0], "either the spend succeeds, or the release or expiry");
        assert_eq!(check(&table), Balance { granted: 3, available: 3 - spent, held: 0, spent });
    });
}

#[test]
fn released_credits_are_held_by_one_lookup() {
    explore(SCHEDULES, || {
        let table = table();
        assert!(is_granted(&table, &hold(1, 3)));
        let granted = run_concurrently(
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
