//! Rules for credits, which are held, then spent or released, as in [`Account`](enrich_lib::credit::Account).
//!
//! Every step also checks that `granted = available + held + spent`.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::HoldOutcome::{Granted, Insufficient};
use enrich_lib::model::Timestamp;

use super::desk::{Desk, HOLD_LIFE, Refused};
use super::{START, Store};

/// Generates the tests of the rules for credits. `$open` returns a fresh store (`Arc<impl Store>`).
#[macro_export]
macro_rules! credits_contract {
    ($open:expr) => {
        $crate::sentences! { credits, $open,
            a_hold_reduces_what_is_available
            the_last_credits_can_be_held_and_spent
            a_hold_of_more_than_is_available_changes_nothing
            a_workspace_without_credits_holds_nothing
            a_hold_of_nothing_is_granted
            a_repeated_hold_is_granted_once
            a_hold_repeated_with_another_amount_is_refused
            a_spend_moves_what_was_held
            a_spend_of_less_returns_the_rest
            a_spend_of_nothing_returns_everything
            a_release_returns_everything
            a_repeated_spend_is_charged_once
            a_repeated_release_returns_once
            a_second_spend_of_another_amount_is_refused
            a_spend_after_the_release_is_refused
            a_release_after_the_spend_is_refused
            a_spend_without_a_hold_is_refused
            a_spend_of_more_than_was_held_is_refused
            a_hold_that_arrives_after_its_release_is_refused
            a_hold_that_arrives_after_its_spend_is_refused
            a_hold_that_arrives_after_its_expiry_is_refused
            a_hold_lives_until_its_expiry
            an_expired_hold_returns_by_itself
            an_expired_hold_can_not_be_spent
            an_expired_hold_can_be_released_and_returns_once
            a_spend_does_not_expire
            time_does_not_go_back
            grants_add_up
            a_grant_can_be_held_at_once
            workspaces_do_not_touch_each_other
        }
    };
}

pub async fn a_hold_reduces_what_is_available<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    desk.holding(1, 3).await;
    assert_eq!(desk.totals().await, (7, 3, 0));
    desk.holding(2, 2).await;
    assert_eq!(desk.totals().await, (5, 5, 0));
}

pub async fn the_last_credits_can_be_held_and_spent<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 3).await;
    let all = desk.holding(1, 3).await;
    assert_eq!(desk.spend(&all, 3).await, Ok(()));
    assert_eq!(desk.totals().await, (0, 0, 3));
}

pub async fn a_hold_of_more_than_is_available_changes_nothing<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    desk.holding(1, 7).await;
    let refused = desk.lookup(2, 4);
    assert_eq!(desk.hold(&refused).await, Ok(Insufficient));
    assert_eq!(desk.totals().await, (3, 7, 0));
    assert_eq!(desk.spend(&refused, 1).await, Err(Refused));
    // The refusal is not remembered: the same lookup succeeds once there are enough credits.
    desk.grant(1).await;
    assert_eq!(desk.hold(&refused).await, Ok(Granted));
}

pub async fn a_workspace_without_credits_holds_nothing<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 0).await;
    assert_eq!(desk.hold(&desk.lookup(1, 1)).await, Ok(Insufficient));
    assert_eq!(desk.totals().await, (0, 0, 0));
}

pub async fn a_hold_of_nothing_is_granted<S: Store>(store: Arc<S>) {
    // If all lookups are free, a workspace without credits can make them too.
    let desk = Desk::open(store, 0).await;
    let free = desk.holding(1, 0).await;
    assert_eq!(desk.release(&free).await, Ok(()));
    assert_eq!(desk.totals().await, (0, 0, 0));
}

pub async fn a_repeated_hold_is_granted_once<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 6).await;
    assert_eq!(desk.hold(&hold).await, Ok(Granted));
    assert_eq!(desk.totals().await, (4, 6, 0));
}

pub async fn a_hold_repeated_with_another_amount_is_refused<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    desk.holding(1, 3).await;
    for other in [0, 2, 4, 11] {
        assert_eq!(desk.hold(&desk.lookup(1, other)).await, Err(Refused), "{other}");
    }
    assert_eq!(desk.totals().await, (7, 3, 0));
}

pub async fn a_spend_moves_what_was_held<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    assert_eq!(desk.spend(&hold, 3).await, Ok(()));
    assert_eq!(desk.totals().await, (7, 0, 3));
}

pub async fn a_spend_of_less_returns_the_rest<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 5).await;
    assert_eq!(desk.spend(&hold, 2).await, Ok(()));
    assert_eq!(desk.totals().await, (8, 0, 2));
}

pub async fn a_spend_of_nothing_returns_everything<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 5).await;
    assert_eq!(desk.spend(&hold, 0).await, Ok(()));
    assert_eq!(desk.spend(&hold, 0).await, Ok(()));
    assert_eq!(desk.totals().await, (10, 0, 0));
}

pub async fn a_release_returns_everything<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    assert_eq!(desk.release(&hold).await, Ok(()));
    assert_eq!(desk.totals().await, (10, 0, 0));
}

pub async fn a_repeated_spend_is_charged_once<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    for _ in 0..3 {
        assert_eq!(desk.spend(&hold, 2).await, Ok(()));
        assert_eq!(desk.totals().await, (8, 0, 2));
    }
}

pub async fn a_repeated_release_returns_once<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let (released, other) = (desk.holding(1, 3).await, desk.holding(2, 3).await);
    for _ in 0..3 {
        assert_eq!(desk.release(&released).await, Ok(()));
        assert_eq!(desk.totals().await, (7, 3, 0));
    }
    assert_eq!(desk.spend(&other, 3).await, Ok(()));
}

pub async fn a_second_spend_of_another_amount_is_refused<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    assert_eq!(desk.spend(&hold, 2).await, Ok(()));
    for other in [0, 1, 3] {
        assert_eq!(desk.spend(&hold, other).await, Err(Refused), "{other}");
    }
    assert_eq!(desk.totals().await, (8, 0, 2));
}

pub async fn a_spend_after_the_release_is_refused<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    assert_eq!(desk.release(&hold).await, Ok(()));
    assert_eq!(desk.spend(&hold, 3).await, Err(Refused));
    assert_eq!(desk.totals().await, (10, 0, 0));
}

pub async fn a_release_after_the_spend_is_refused<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    assert_eq!(desk.spend(&hold, 3).await, Ok(()));
    assert_eq!(desk.release(&hold).await, Err(Refused));
    assert_eq!(desk.totals().await, (7, 0, 3));
}

pub async fn a_spend_without_a_hold_is_refused<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    for credits in [0, 1] {
        assert_eq!(desk.spend(&desk.lookup(1, 1), credits).await, Err(Refused));
    }
    assert_eq!(desk.totals().await, (10, 0, 0));
}

pub async fn a_spend_of_more_than_was_held_is_refused<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    for more in [4, u64::MAX] {
        assert_eq!(desk.spend(&hold, more).await, Err(Refused), "{more}");
    }
    // The limit is the held amount, not the amount in the settlement's own hold.
    assert_eq!(desk.spend(&desk.lookup(1, 4), 4).await, Err(Refused));
    assert_eq!(desk.totals().await, (7, 3, 0));
    assert_eq!(desk.spend(&hold, 3).await, Ok(()), "the hold outlives the refusal");
}

pub async fn a_hold_that_arrives_after_its_release_is_refused<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let late = desk.lookup(1, 3);
    assert_eq!(desk.release(&late).await, Ok(()));
    assert_eq!(desk.hold(&late).await, Err(Refused));
    assert_eq!(desk.totals().await, (10, 0, 0));
}

pub async fn a_hold_that_arrives_after_its_spend_is_refused<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    assert_eq!(desk.spend(&hold, 3).await, Ok(()));
    assert_eq!(desk.hold(&hold).await, Err(Refused));
    assert_eq!(desk.totals().await, (7, 0, 3));
}

pub async fn a_hold_that_arrives_after_its_expiry_is_refused<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    desk.holding(1, 1).await; // loads the workspace, so that the tick advances its clock
    desk.tick(START + HOLD_LIFE).await;
    assert_eq!(desk.hold(&desk.lookup(2, 3)).await, Err(Refused));
    assert_eq!(desk.totals().await, (10, 0, 0));
}

pub async fn a_hold_lives_until_its_expiry<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    desk.tick(before(HOLD_LIFE)).await;
    assert_eq!(desk.totals().await, (7, 3, 0));
    assert_eq!(desk.spend(&hold, 3).await, Ok(()));
}

pub async fn an_expired_hold_returns_by_itself<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    desk.holding(1, 3).await;
    desk.tick(START + HOLD_LIFE).await;
    assert_eq!(desk.totals().await, (10, 0, 0));
}

pub async fn an_expired_hold_can_not_be_spent<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    // At its expiry, and long after it, when the store may have forgotten the hold.
    for after in [HOLD_LIFE, HOLD_LIFE * 60] {
        desk.tick(START + after).await;
        assert_eq!(desk.spend(&hold, 3).await, Err(Refused));
    }
    assert_eq!(desk.totals().await, (10, 0, 0));
}

pub async fn an_expired_hold_can_be_released_and_returns_once<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    for after in [HOLD_LIFE, HOLD_LIFE * 60] {
        desk.tick(START + after).await;
        assert_eq!(desk.release(&hold).await, Ok(()));
    }
    assert_eq!(desk.totals().await, (10, 0, 0));
}

pub async fn a_spend_does_not_expire<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    assert_eq!(desk.spend(&hold, 3).await, Ok(()));
    desk.tick(START + HOLD_LIFE).await;
    assert_eq!(desk.spend(&hold, 3).await, Ok(()), "a repeated spend finds its first for a while");
    desk.tick(START + HOLD_LIFE * 60).await;
    assert_eq!(desk.totals().await, (7, 0, 3));
}

pub async fn time_does_not_go_back<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 3).await;
    desk.tick(START + HOLD_LIFE).await;
    desk.tick(START).await;
    assert_eq!(desk.spend(&hold, 3).await, Err(Refused));
    assert_eq!(desk.totals().await, (10, 0, 0));
}

pub async fn grants_add_up<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 10).await;
    let hold = desk.holding(1, 10).await;
    desk.grant(5).await;
    assert_eq!(desk.totals().await, (5, 10, 0));
    assert_eq!(desk.spend(&hold, 10).await, Ok(()));
    desk.grant(7).await;
    assert_eq!(desk.totals().await, (12, 0, 10));
}

pub async fn a_grant_can_be_held_at_once<S: Store>(store: Arc<S>) {
    let desk = Desk::open(store, 0).await;
    assert_eq!(desk.hold(&desk.lookup(1, 1)).await, Ok(Insufficient));
    desk.grant(1).await;
    let hold = desk.holding(2, 1).await;
    assert_eq!(desk.spend(&hold, 1).await, Ok(()));
}

pub async fn workspaces_do_not_touch_each_other<S: Store>(store: Arc<S>) {
    let a = Desk::open(store.clone(), 10).await;
    let b = Desk::open(store, 2).await;
    let hold = a.holding(1, 5).await;
    assert_eq!(b.totals().await, (2, 0, 0));
    assert_eq!(b.spend(&b.lookup(1, 1), 1).await, Err(Refused), "a hold is its workspace's alone");
    assert_eq!(b.hold(&b.lookup(2, 3)).await, Ok(Insufficient));
    assert_eq!(a.spend(&hold, 5).await, Ok(()));
    b.grant(1).await;
    assert_eq!((a.totals().await, b.totals().await), ((5, 0, 5), (3, 0, 0)));
}

/// Returns the last millisecond before `START + after`.
fn before(after: Duration) -> Timestamp {
    START + (after - Duration::from_millis(1))
}
