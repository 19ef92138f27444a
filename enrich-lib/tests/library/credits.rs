//! What the contract of a store does not show of an account: exact errors, withdrawals, and when it is at
//! rest.

use std::time::Duration;

use enrich_lib::credit::AccountError::{Ended, NoHold, OverHold, TooLarge, Withdrawn};
use enrich_lib::credit::HoldOutcome::{Granted, Insufficient};
use enrich_lib::credit::{Account, Balance, Hold, Settlement, Shortage};
use enrich_lib::model::LookupId;

#[test]
fn settlement_without_hold_is_decided_by_the_spend() {
    let mut account = with_credits(5);
    for (lookup, settlement) in [(1, Settlement::Spend(1)), (2, Settlement::Release)] {
        let hold = hold(lookup, 1);
        account.hold(&hold).unwrap();
        assert_eq!(
            [account.settle(&hold, settlement), account.settle(&hold, settlement)],
            [Ok(()), Err(NoHold)]
        );
    }
    assert_balance(&account, [4, 0, 1]);

    let decisions = [None, Some(1), Some(2)].map(|spent| {
        [Settlement::Release, Settlement::Spend(0), Settlement::Spend(1)]
            .map(|settlement| settlement.without_hold(spent))
    });
    assert_eq!(
        decisions,
        [
            [Ok(()), Ok(()), Err(NoHold)],
            [Err(Ended), Err(Ended), Ok(())],
            [Err(Ended), Err(Ended), Err(Ended)],
        ]
    );
}

#[test]
fn ignores_an_earlier_time() {
    let mut account = with_credits(5);
    account.advance(at(100));
    account.hold(&hold(1, 1)).unwrap();
    account.advance(at(0));
    account.advance(at(109));
    assert_balance(&account, [4, 1, 0]);
    account.advance(at(110));
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn hold_of_withdrawn_credits_cannot_be_spent() {
    let mut account = with_credits(10);
    for lookup in 1..=3 {
        account.hold(&hold(lookup, 3)).unwrap();
    }
    account.settle(&hold(1, 3), Settlement::Spend(3)).unwrap();
    account.set_granted(7);
    assert_balance(&account, [0, 4, 3]);
    assert_eq!(account.hold(&hold(4, 1)), Ok(Insufficient(Shortage::Held)));
    account.settle(&hold(2, 3), Settlement::Spend(3)).unwrap();
    assert_balance(&account, [0, 1, 6]);
    assert_eq!(account.settle(&hold(3, 3), Settlement::Spend(3)), Err(Withdrawn));
    assert_balance(&account, [1, 0, 6]);
    account.set_granted(10);
    assert_eq!(account.settle(&hold(3, 3), Settlement::Spend(3)), Err(NoHold), "it has failed for good");
}

#[test]
fn is_at_rest_after_its_last_hold() {
    let mut account = with_credits(5);
    let lookup = hold(1, 1).lookup_id;
    assert!(!account.tracks(lookup) && account.is_at_rest());
    account.hold(&hold(1, 1)).unwrap();
    account.hold(&hold(2, 1)).unwrap();
    account.advance(at(1));
    assert!(account.tracks(lookup) && !account.is_at_rest());
    account.settle(&hold(1, 1), Settlement::Spend(1)).unwrap();
    account.advance(at(2));
    assert!(!account.tracks(lookup) && !account.is_at_rest());
    account.advance(at(10));
    assert!(account.is_at_rest());
}

#[test]
fn rejects_inconsistent_totals() {
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

pub(crate) fn with_credits(credits: u64) -> Account {
    Account::new(credits, 0).expect("an account")
}

/// Returns a hold that lasts for 10 seconds.
pub(crate) fn hold(lookup: u8, credits: u64) -> Hold {
    let lookup_id = LookupId::from_bytes([lookup; 16]);
    let mut hold = Hold::new(lookup_id, "demo".parse().expect("a name"), credits);
    hold.ttl = at(10);
    hold
}

pub(crate) fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[track_caller]
pub(crate) fn assert_balance(account: &Account, [available, held, spent]: [u64; 3]) {
    let balance = account.balance();
    assert_eq!([balance.available, balance.held, balance.spent], [available, held, spent]);
    assert_eq!(balance.granted, available + held + spent);
}
