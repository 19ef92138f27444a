//! Spends in two steps, as durable stores settle them: slow, failed and concurrent attempts.

use std::time::Duration;

use enrich_lib::credit::AccountError::{Ended, NoHold};
use enrich_lib::credit::Settlement;

use crate::credits::{assert_balance, at, hold, with_credits};

#[test]
fn hold_does_not_expire_during_spend() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 2)).unwrap();
    assert_eq!(account.begin_spend(&hold(1, 2), 1), Ok(()));
    account.advance(at(1_000));
    assert_eq!(account.settle(&hold(1, 2), Settlement::Release), Err(Ended));
    assert_balance(&account, [3, 2, 0]);

    account.commit_spend(hold(1, 2).lookup_id);
    assert_eq!(account.begin_spend(&hold(1, 2), 1), Err(NoHold));
    assert_balance(&account, [4, 0, 1]);
}

/// A store can be unavailable for longer than a hold lasts.
#[test]
fn slow_spend_keeps_its_hold() {
    for end in [at(1_000), Duration::MAX] {
        let mut account = with_credits(5);
        account.hold(&hold(1, 2)).unwrap();
        account.begin_spend(&hold(1, 2), 1).unwrap();
        (10..200).for_each(|second| account.advance(at(second)));
        account.advance(end);
        account.advance(end);
        assert_balance(&account, [3, 2, 0]);

        account.commit_spend(hold(1, 2).lookup_id);
        assert_balance(&account, [4, 0, 1]);
        assert_eq!(account.begin_spend(&hold(1, 2), 1), Err(NoHold));
    }
}

#[test]
fn forgets_slow_spend_after_its_commit() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 2)).unwrap();
    account.begin_spend(&hold(1, 2), 1).unwrap();
    (10..200).for_each(|second| account.advance(at(second)));
    account.commit_spend(hold(1, 2).lookup_id);
    account.advance(at(200));
    assert!(account.is_at_rest());
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn slow_spend_that_fails_releases_credits() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 2)).unwrap();
    account.begin_spend(&hold(1, 2), 1).unwrap();
    (10..200).for_each(|second| account.advance(at(second)));
    account.abort_spend(hold(1, 2).lookup_id);
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn failed_spend_ends_its_hold() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 2)).unwrap();
    account.begin_spend(&hold(1, 2), 1).unwrap();
    account.abort_spend(hold(1, 2).lookup_id);
    assert_balance(&account, [5, 0, 0]);
    assert_eq!(account.settle(&hold(1, 2), Settlement::Spend(1)), Err(NoHold));
    assert_eq!(account.settle(&hold(1, 2), Settlement::Release), Err(NoHold));
    account.advance(at(1));
    assert!(account.is_at_rest());
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn failed_spend_after_expiry_leaves_other_holds() {
    let mut account = with_credits(5);
    let mut other = hold(2, 1);
    other.ttl = at(100);
    account.hold(&other).unwrap();
    account.hold(&hold(1, 2)).unwrap();
    account.begin_spend(&hold(1, 2), 2).unwrap();
    account.advance(at(10));
    account.abort_spend(hold(1, 2).lookup_id);
    assert_balance(&account, [4, 1, 0]);
}

#[test]
fn failed_attempt_does_not_undo_concurrent_attempt() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    assert_eq!([account.begin_spend(&hold(1, 1), 1), account.begin_spend(&hold(1, 1), 1)], [Ok(()); 2]);
    account.abort_spend(hold(1, 1).lookup_id);
    assert_eq!(account.settle(&hold(1, 1), Settlement::Release), Err(Ended), "the other may yet succeed");
    account.commit_spend(hold(1, 1).lookup_id);
    account.commit_spend(hold(1, 1).lookup_id);
    account.abort_spend(hold(1, 1).lookup_id);
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn last_failed_attempt_ends_the_hold() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    account.begin_spend(&hold(1, 1), 1).unwrap();
    account.begin_spend(&hold(1, 1), 1).unwrap();
    account.abort_spend(hold(1, 1).lookup_id);
    assert_balance(&account, [4, 1, 0]);
    account.abort_spend(hold(1, 1).lookup_id);
    assert_balance(&account, [5, 0, 0]);
    account.commit_spend(hold(1, 1).lookup_id);
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn rejects_concurrent_attempt_at_another_price() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 3)).unwrap();
    account.begin_spend(&hold(1, 3), 2).unwrap();
    assert_eq!(account.begin_spend(&hold(1, 3), 1), Err(Ended));
    account.abort_spend(hold(1, 3).lookup_id);
    assert_balance(&account, [5, 0, 0]);
}
