//! An account's behaviour when operations arrive late, twice, out of order or not at all.

use enrich_lib::credit::AccountError::{Ended, NoHold, OtherHold, OverHold, TooLarge};
use enrich_lib::credit::HoldOutcome::{Granted, Insufficient};
use enrich_lib::credit::SpendStart::{AlreadySpent, Begun};
use enrich_lib::credit::{Account, Balance, Hold, Settlement};
use enrich_lib::memory::AccountTable;
use enrich_lib::model::{LookupId, Timestamp};
use enrich_lib::ports::Credits;
use futures_executor::block_on;

#[test]
fn credits_are_held_to_the_last_one_and_no_further() {
    let mut account = with_credits(2);
    assert_eq!(account.hold(&hold(1, 1)), Ok(Granted));
    assert_eq!(account.hold(&hold(2, 2)), Ok(Insufficient));
    assert_eq!(account.hold(&hold(3, 1)), Ok(Granted));
    assert_eq!(account.hold(&hold(4, 1)), Ok(Insufficient));
    assert_balance(&account, [0, 2, 0]);
}

#[test]
fn a_spend_of_a_part_makes_the_rest_available_again() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 3)).unwrap();
    assert_eq!(account.settle(&hold(1, 3), Settlement::Spend(1)), Ok(()));
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn no_more_is_spent_than_is_held() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    assert_eq!(account.settle(&hold(1, 1), Settlement::Spend(2)), Err(OverHold));
    assert_eq!(account.settle(&hold(2, 1), Settlement::Spend(1)), Err(NoHold));
    assert_balance(&account, [4, 1, 0]);
}

#[test]
fn a_lookup_that_asks_twice_holds_once() {
    let mut account = with_credits(5);
    assert_eq!([account.hold(&hold(1, 2)), account.hold(&hold(1, 2))], [Ok(Granted); 2]);
    assert_eq!(account.hold(&hold(1, 3)), Err(OtherHold));
    assert_balance(&account, [3, 2, 0]);
}

#[test]
fn a_settlement_that_is_told_twice_counts_once() {
    let mut account = with_credits(5);
    for (lookup, settlement) in [(1, Settlement::Spend(1)), (2, Settlement::Release)] {
        let hold = hold(lookup, 1);
        account.hold(&hold).unwrap();
        assert_eq!([account.settle(&hold, settlement), account.settle(&hold, settlement)], [Ok(()); 2]);
    }
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn the_first_of_two_settlements_wins() {
    let mut account = with_credits(5);
    let (spent, released) = (hold(1, 2), hold(2, 2));
    account.hold(&spent).unwrap();
    account.hold(&released).unwrap();
    account.settle(&spent, Settlement::Spend(1)).unwrap();
    account.settle(&released, Settlement::Release).unwrap();

    assert_eq!(account.settle(&spent, Settlement::Release), Err(Ended));
    assert_eq!(account.settle(&spent, Settlement::Spend(2)), Err(Ended));
    assert_eq!(account.settle(&released, Settlement::Spend(1)), Err(Ended));
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn a_hold_that_its_release_has_overtaken_is_refused() {
    let mut account = with_credits(5);
    assert_eq!(account.settle(&hold(1, 1), Settlement::Release), Ok(()));
    assert_eq!(account.hold(&hold(1, 1)), Err(Ended));
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn a_hold_that_comes_after_its_own_end_is_refused() {
    let mut account = with_credits(5);
    account.advance(at(10));
    assert_eq!(account.hold(&hold(1, 1)), Err(Ended));
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn a_hold_that_nobody_settles_runs_out_when_its_time_has_come_and_not_before() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    account.advance(Timestamp::from_unix_ms(9_999));
    assert_balance(&account, [4, 1, 0]);
    account.advance(at(10));
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn a_spend_after_the_hold_has_run_out_is_refused_and_a_release_is_not() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    account.advance(at(10));
    assert_eq!(account.settle(&hold(1, 1), Settlement::Spend(1)), Err(Ended));
    assert_eq!(account.settle(&hold(1, 1), Settlement::Release), Ok(()));
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn a_release_that_comes_after_its_holds_end_leaves_nothing_behind() {
    let mut account = with_credits(5);
    account.advance(at(10));
    assert_eq!(account.settle(&hold(1, 1), Settlement::Release), Ok(()));
    assert_eq!(account.settle(&hold(1, 1), Settlement::Spend(1)), Err(NoHold));
}

#[test]
fn the_next_hold_tells_the_time_too() {
    let mut account = with_credits(1);
    account.hold(&hold(1, 1)).unwrap();
    let later = Hold { placed_at: at(10), expires_at: at(20), ..hold(2, 1) };
    assert_eq!(account.hold(&later), Ok(Granted), "the first has run out");
}

#[test]
fn time_never_goes_back() {
    let mut account = with_credits(5);
    account.advance(at(10));
    account.advance(at(0));
    assert_eq!(account.hold(&hold(1, 1)), Err(Ended));
}

#[test]
fn a_hold_can_not_run_out_while_it_is_being_spent() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 2)).unwrap();
    assert_eq!(account.begin_spend(&hold(1, 2), 1), Ok(Begun));
    account.advance(at(1_000));
    assert_eq!(account.settle(&hold(1, 2), Settlement::Release), Err(Ended));
    assert_balance(&account, [3, 2, 0]);

    account.commit_spend(&hold(1, 2));
    assert_eq!(account.begin_spend(&hold(1, 2), 1), Ok(AlreadySpent));
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn a_spend_that_fails_after_the_holds_time_gives_the_credits_back_in_the_end() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 2)).unwrap();
    account.begin_spend(&hold(1, 2), 2).unwrap();
    account.advance(at(10));
    account.abort_spend(&hold(1, 2));
    assert_balance(&account, [3, 2, 0]);
    account.advance(at(10) + Account::TOMBSTONE_TTL);
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn a_spend_that_failed_can_be_tried_again() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    account.begin_spend(&hold(1, 1), 1).unwrap();
    account.abort_spend(&hold(1, 1));
    assert_balance(&account, [4, 1, 0]);
    assert_eq!(account.settle(&hold(1, 1), Settlement::Spend(1)), Ok(()));
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn one_attempt_that_fails_does_not_undo_another_that_is_under_way() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    assert_eq!([account.begin_spend(&hold(1, 1), 1), account.begin_spend(&hold(1, 1), 1)], [Ok(Begun); 2]);
    account.abort_spend(&hold(1, 1));
    assert_eq!(account.settle(&hold(1, 1), Settlement::Release), Err(Ended), "the other may yet succeed");
    account.commit_spend(&hold(1, 1));
    account.commit_spend(&hold(1, 1));
    account.abort_spend(&hold(1, 1));
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn an_attempt_at_another_price_is_refused_while_one_is_under_way() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 3)).unwrap();
    account.begin_spend(&hold(1, 3), 2).unwrap();
    assert_eq!(account.begin_spend(&hold(1, 3), 1), Err(Ended));
    account.abort_spend(&hold(1, 3));
    assert_eq!(account.settle(&hold(1, 3), Settlement::Release), Ok(()), "it was no attempt");
}

#[test]
fn a_clock_that_is_set_back_takes_the_deadlines_with_it() {
    let mut account = with_credits(5);
    account.advance(at(10_000));
    let before = Hold { placed_at: at(10_000), expires_at: at(10_010), ..hold(1, 2) };
    account.hold(&before).unwrap();
    account.advance(at(1_000));
    let after = Hold { placed_at: at(1_005), expires_at: at(1_015), ..hold(2, 1) };
    assert_eq!(account.hold(&after), Ok(Granted), "nobody waits until the clock has caught up");
    account.advance(at(1_009));
    assert_balance(&account, [2, 3, 0]);
    account.advance(at(1_010));
    assert_balance(&account, [4, 1, 0]);
    account.advance(at(1_015));
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn a_clock_that_is_set_back_by_no_more_than_the_memory_is_waited_for() {
    let mut account = with_credits(5);
    account.advance(at(30));
    let placed = Hold { placed_at: at(30), expires_at: at(40), ..hold(1, 1) };
    account.hold(&placed).unwrap();
    account.advance(Timestamp::from_unix_ms(at(30).unix_ms() - Account::TOMBSTONE_TTL.as_millis() as u64));
    account.advance(at(39));
    assert_balance(&account, [4, 1, 0]);
    account.advance(at(40));
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn a_clock_that_is_set_back_does_not_make_the_memory_longer() {
    let mut account = with_credits(5);
    account.advance(at(10_000));
    let before = Hold { placed_at: at(10_000), expires_at: at(10_010), ..hold(1, 1) };
    account.hold(&before).unwrap();
    account.settle(&before, Settlement::Spend(1)).unwrap();
    account.advance(at(1_000));
    account.advance(at(1_010));
    assert_eq!(account.settle(&before, Settlement::Spend(1)), Ok(()), "still remembered");
    account.advance(at(1_010) + Account::TOMBSTONE_TTL);
    assert_eq!(account.settle(&before, Settlement::Spend(1)), Err(NoHold));
}

#[test]
fn a_hold_that_is_late_does_not_set_the_clock_back() {
    let mut account = with_credits(5);
    account.advance(at(10_000));
    assert_eq!(account.hold(&hold(1, 1)), Err(Ended));
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn a_spend_that_nobody_was_told_of_is_held_until_it_is_voided_and_then_available() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 3)).unwrap();
    account.settle(&hold(1, 3), Settlement::Spend(2)).unwrap();
    account.reopen_spend(&hold(1, 3), 2);
    assert_balance(&account, [3, 2, 0]);
    account.advance(at(1_000));
    assert_balance(&account, [3, 2, 0]);
    account.void_spend(&hold(1, 3));
    account.void_spend(&hold(1, 3));
    assert_balance(&account, [5, 0, 0]);
    assert_eq!(account.begin_spend(&hold(1, 3), 2), Err(Ended));
}

/// A reply can take this long if a machine sleeps or a clock jumps.
#[test]
fn a_spend_that_is_forgotten_by_then_is_voided_all_the_same() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 3)).unwrap();
    account.settle(&hold(1, 3), Settlement::Spend(2)).unwrap();
    account.advance(at(10) + Account::TOMBSTONE_TTL);
    account.reopen_spend(&hold(1, 3), 2);
    assert_balance(&account, [3, 2, 0]);
    account.void_spend(&hold(1, 3));
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn what_was_not_spent_can_not_be_reopened() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 3)).unwrap();
    account.reopen_spend(&hold(1, 3), 2);
    assert_balance(&account, [2, 3, 0]);
    account.settle(&hold(1, 3), Settlement::Spend(1)).unwrap();
    account.reopen_spend(&hold(1, 3), 2);
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn a_reopened_spend_can_be_told_after_all() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    account.settle(&hold(1, 1), Settlement::Spend(1)).unwrap();
    account.reopen_spend(&hold(1, 1), 1);
    assert_eq!(account.begin_spend(&hold(1, 1), 1), Ok(Begun));
    account.commit_spend(&hold(1, 1));
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn an_ended_hold_is_forgotten_some_time_after_it_would_have_run_out() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    account.settle(&hold(1, 1), Settlement::Spend(1)).unwrap();
    account.advance(Timestamp::from_unix_ms((at(10) + Account::TOMBSTONE_TTL).unix_ms() - 1));
    assert_eq!(account.settle(&hold(1, 1), Settlement::Spend(1)), Ok(()), "still remembered");
    account.advance(at(10) + Account::TOMBSTONE_TTL);
    assert_eq!(account.settle(&hold(1, 1), Settlement::Spend(1)), Err(NoHold));
    assert_eq!(account.hold(&hold(1, 1)), Err(Ended), "nor can it be held again");
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn what_is_available_can_be_taken_out_and_what_is_held_or_spent_can_not() {
    let mut account = with_credits(10);
    account.hold(&hold(1, 3)).unwrap();
    account.hold(&hold(2, 2)).unwrap();
    account.settle(&hold(2, 2), Settlement::Spend(2)).unwrap();
    assert_eq!([account.withdraw(4), account.withdraw(4), account.withdraw(4)], [4, 1, 0]);
    assert_balance(&account, [0, 3, 2]);
    account.settle(&hold(1, 3), Settlement::Release).unwrap();
    assert_eq!(account.withdraw(u64::MAX), 3, "what was held is available again");
    assert_eq!(account.balance(), Balance { granted: 2, available: 0, held: 0, spent: 2 });
}

#[test]
fn a_lookup_is_known_from_its_hold_until_it_is_forgotten() {
    let mut account = with_credits(5);
    let lookup = hold(1, 1).lookup_id;
    assert!(!account.knows(lookup) && account.is_at_rest());
    account.hold(&hold(1, 1)).unwrap();
    assert!(account.knows(lookup) && !account.is_at_rest());
    account.settle(&hold(1, 1), Settlement::Spend(1)).unwrap();
    account.advance(at(10));
    assert!(account.knows(lookup) && !account.knows(hold(2, 1).lookup_id));
    account.advance(at(10) + Account::TOMBSTONE_TTL);
    assert!(!account.knows(lookup) && account.is_at_rest());
}

#[test]
fn totals_that_do_not_add_up_are_refused() {
    assert_eq!(
        Account::new(10, 4).unwrap().balance(),
        Balance { granted: 10, available: 6, held: 0, spent: 4 }
    );
    assert_eq!(Account::new(4, 10).map(|_| ()), Err(OverHold));
    let mut account = with_credits(u64::MAX);
    assert_eq!(account.grant(1), Err(TooLarge));
    assert_eq!(account.hold(&hold(1, u64::MAX)), Ok(Granted));
    assert_balance(&account, [0, u64::MAX, 0]);
}

#[test]
fn a_table_of_accounts_keeps_workspaces_apart() {
    let table = AccountTable::default();
    let theirs = Hold { workspace: "other".parse().unwrap(), ..hold(1, 1) };
    table.grant(&hold(1, 1).workspace, 1).unwrap();
    assert_eq!(block_on(table.hold(&theirs)).unwrap(), Insufficient);
    assert_eq!(block_on(table.hold(&hold(1, 1))).unwrap(), Granted);
    assert!(block_on(table.settle(&theirs, Settlement::Spend(1))).is_err(), "not their hold");
    block_on(table.settle(&hold(1, 1), Settlement::Spend(1))).unwrap();
    let balances = [hold(1, 1), theirs].map(|hold| table.balance(&hold.workspace).spent);
    assert_eq!(balances, [1, 0]);
}

#[test]
fn a_table_of_accounts_lets_holds_run_out_in_all_of_them() {
    let table = AccountTable::default();
    table.grant(&hold(1, 1).workspace, 1).unwrap();
    block_on(table.hold(&hold(1, 1))).unwrap();
    table.advance(at(10));
    assert_eq!(table.balance(&hold(1, 1).workspace).available, 1);
}

fn with_credits(credits: u64) -> Account {
    Account::new(credits, 0).expect("an account")
}

/// Returns a hold that lasts from second 0 to second 10.
fn hold(lookup: u8, credits: u64) -> Hold {
    Hold {
        lookup_id: LookupId::from_bytes([lookup; 16]),
        workspace: "demo".parse().expect("a name"),
        credits,
        placed_at: at(0),
        expires_at: at(10),
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix_ms(seconds * 1_000)
}

#[track_caller]
fn assert_balance(account: &Account, [available, held, spent]: [u64; 3]) {
    let balance = account.balance();
    assert_eq!([balance.available, balance.held, balance.spent], [available, held, spent]);
    assert_eq!(balance.granted, available + held + spent);
}
