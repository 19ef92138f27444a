//! Spends in two steps, as durable stores settle them: concurrent attempts, failed attempts and undone spends.

use enrich_lib::credit::AccountError::Ended;
use enrich_lib::credit::SpendStart::{AlreadySpent, Begun};
use enrich_lib::credit::{Account, Hold, Settlement};
use enrich_lib::model::Timestamp;

use crate::credits::{assert_balance, at, hold, with_credits};

#[test]
fn hold_does_not_expire_during_spend() {
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

/// A store can be unavailable for longer than an ended hold is remembered.
#[test]
fn slow_spend_keeps_its_hold() {
    for end in [at(1_000), Timestamp::from_unix_ms(u64::MAX)] {
        let mut account = with_credits(5);
        account.hold(&hold(1, 2)).unwrap();
        account.begin_spend(&hold(1, 2), 1).unwrap();
        (10..200).for_each(|second| account.advance(at(second)));
        account.advance(end);
        account.advance(end);
        assert_balance(&account, [3, 2, 0]);

        account.commit_spend(&hold(1, 2));
        assert_balance(&account, [4, 0, 1]);
        assert_eq!(account.begin_spend(&hold(1, 2), 1), Ok(AlreadySpent));
    }
}

#[test]
fn slow_spend_is_due_again_after_retention() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 2)).unwrap();
    account.begin_spend(&hold(1, 2), 1).unwrap();
    for (now, next) in [(9, 10), (10, 40), (39, 40), (40, 70), (200, 230)] {
        account.advance(at(now));
        assert_eq!(account.next_due(), Some(at(next)));
    }
}

#[test]
fn forgets_slow_spend_after_its_commit() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 2)).unwrap();
    account.begin_spend(&hold(1, 2), 1).unwrap();
    (10..200).for_each(|second| account.advance(at(second)));
    account.commit_spend(&hold(1, 2));
    account.advance(at(200) + 2 * Account::TOMBSTONE_TTL);
    assert!(account.is_at_rest());
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn slow_spend_that_fails_releases_credits() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 2)).unwrap();
    account.begin_spend(&hold(1, 2), 1).unwrap();
    (10..200).for_each(|second| account.advance(at(second)));
    account.abort_spend(&hold(1, 2));
    account.advance(at(199) + Account::TOMBSTONE_TTL);
    assert_balance(&account, [5, 0, 0]);
}

#[test]
fn spend_is_in_progress_until_last_attempt_ends() {
    let mut account = with_credits(5);
    let (committed, aborted) = (hold(1, 1), hold(2, 1));
    assert!(!account.is_spending(committed.lookup_id));
    account.hold(&committed).unwrap();
    account.hold(&aborted).unwrap();
    assert!(!account.is_spending(committed.lookup_id));

    account.begin_spend(&committed, 1).unwrap();
    assert!(account.is_spending(committed.lookup_id) && !account.is_spending(aborted.lookup_id));
    account.commit_spend(&committed);
    assert!(!account.is_spending(committed.lookup_id));

    account.begin_spend(&aborted, 1).unwrap();
    account.begin_spend(&aborted, 1).unwrap();
    account.abort_spend(&aborted);
    assert!(account.is_spending(aborted.lookup_id));
    account.abort_spend(&aborted);
    assert!(!account.is_spending(aborted.lookup_id));
}

#[test]
fn failed_spend_after_expiry_releases_credits() {
    let mut account = with_credits(5);
    let other = Hold { expires_at: at(100), ..hold(2, 1) };
    account.hold(&other).unwrap();
    account.hold(&hold(1, 2)).unwrap();
    account.begin_spend(&hold(1, 2), 2).unwrap();
    account.advance(at(10));
    account.abort_spend(&hold(1, 2));
    assert_balance(&account, [2, 3, 0]);
    account.advance(at(10) + Account::TOMBSTONE_TTL);
    assert_balance(&account, [4, 1, 0]);
}

#[test]
fn failed_spend_can_be_retried() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    account.begin_spend(&hold(1, 1), 1).unwrap();
    account.abort_spend(&hold(1, 1));
    assert_balance(&account, [4, 1, 0]);
    assert_eq!(account.settle(&hold(1, 1), Settlement::Spend(1)), Ok(()));
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn failed_attempt_does_not_undo_concurrent_attempt() {
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
fn rejects_concurrent_attempt_at_another_price() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 3)).unwrap();
    account.begin_spend(&hold(1, 3), 2).unwrap();
    assert_eq!(account.begin_spend(&hold(1, 3), 1), Err(Ended));
    account.abort_spend(&hold(1, 3));
    assert_eq!(account.settle(&hold(1, 3), Settlement::Release), Ok(()), "it was no attempt");
}

#[test]
fn unacknowledged_spend_is_held_until_voided() {
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
fn voids_spend_after_its_retention() {
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
fn rejects_reopening_of_unspent_lookup() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 3)).unwrap();
    account.reopen_spend(&hold(1, 3), 2);
    assert_balance(&account, [2, 3, 0]);
    account.settle(&hold(1, 3), Settlement::Spend(1)).unwrap();
    account.reopen_spend(&hold(1, 3), 2);
    assert_balance(&account, [4, 0, 1]);
}

#[test]
fn reopened_spend_can_be_acknowledged() {
    let mut account = with_credits(5);
    account.hold(&hold(1, 1)).unwrap();
    account.settle(&hold(1, 1), Settlement::Spend(1)).unwrap();
    account.reopen_spend(&hold(1, 1), 1);
    assert_eq!(account.begin_spend(&hold(1, 1), 1), Ok(Begun));
    account.commit_spend(&hold(1, 1));
    assert_balance(&account, [4, 0, 1]);
}
