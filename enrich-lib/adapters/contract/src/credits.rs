//! Rules for credits, which are held, then spent or released, as in
//! [`AccountTable`](enrich_lib::memory::AccountTable).
//!
//! They name what gateways get wrong most often. [`machine`](crate::machine) compares all results of random steps.
//!
//! Every step also checks that `granted = available + held + spent`.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::HoldOutcome::{Granted, Insufficient};
use enrich_lib::credit::Shortage::{Exhausted, Held};
use enrich_lib::model::Timestamp;

use crate::fixture::{Fixture, HOLD_TTL, Refused};
use crate::{CreditStore, START};

/// Generates the tests of the rules for credits. `$open` returns a fresh store (`Arc<impl CreditStore>`).
#[macro_export]
macro_rules! credits_contract {
    (broken $open:expr) => {
        $crate::credits_contract! { @ broken_rules, $open }
    };
    ($open:expr) => {
        $crate::credits_contract! { @ rules, $open }
    };
    (@ $with:ident, $open:expr) => {
        $crate::$with! { credits, $open,
            hold_of_more_than_available_changes_nothing
            hold_of_zero_is_granted
            hold_repeated_with_another_amount_is_refused
            spend_of_more_than_held_is_refused
            lookup_that_holds_again_is_charged_once
            hold_lasts_until_its_expiry
            expired_hold_returns_its_credits
            expired_hold_cannot_be_spent
            expired_hold_can_be_released_and_returns_once
            repeated_spend_succeeds_while_its_spend_is_kept
            time_does_not_go_back
            workspaces_are_independent
        }
    };
}

pub async fn hold_of_more_than_available_changes_nothing<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    fixture.place(1, 7).await;
    let available = fixture.store.credits().available(&fixture.workspace);
    assert!(available.is_none_or(|available| available == 3), "{available:?}");
    let refused = fixture.lookup(2, 4);
    assert_eq!(fixture.hold(&refused).await, Ok(Insufficient(Held)));
    assert_eq!(fixture.totals().await, (3, 7, 0));
    assert_eq!(fixture.spend(&refused, 1).await, Err(Refused));
    // The refusal is not remembered: the same lookup succeeds once there are enough credits.
    fixture.grant(1).await;
    assert_eq!(fixture.hold(&refused).await, Ok(Granted));
}

pub async fn hold_of_zero_is_granted<S: CreditStore>(store: Arc<S>) {
    // If all lookups are free, a workspace without credits can make them too.
    let fixture = Fixture::open(store, 0).await;
    let free = fixture.place(1, 0).await;
    assert_eq!(fixture.release(&free).await, Ok(()));
    assert_eq!(fixture.totals().await, (0, 0, 0));
}

pub async fn hold_repeated_with_another_amount_is_refused<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    fixture.place(1, 3).await;
    for other in [0, 2, 4, 11] {
        assert_eq!(fixture.hold(&fixture.lookup(1, other)).await, Err(Refused), "{other}");
    }
    assert_eq!(fixture.totals().await, (7, 3, 0));
}

pub async fn spend_of_more_than_held_is_refused<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    let hold = fixture.place(1, 3).await;
    for more in [4, u64::MAX] {
        assert_eq!(fixture.spend(&hold, more).await, Err(Refused), "{more}");
    }
    // The limit is the held amount, not the amount in the settlement's own hold.
    assert_eq!(fixture.spend(&fixture.lookup(1, 4), 4).await, Err(Refused));
    assert_eq!(fixture.totals().await, (7, 3, 0));
    assert_eq!(fixture.spend(&hold, 3).await, Ok(()), "the hold outlives the refusal");
}

/// Stores forget the hold of a lookup when it ends, but not the spend.
pub async fn lookup_that_holds_again_is_charged_once<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    let hold = fixture.place(1, 3).await;
    assert_eq!(fixture.release(&hold).await, Ok(()));
    assert_eq!(fixture.hold(&hold).await, Ok(Granted));
    assert_eq!(fixture.spend(&hold, 2).await, Ok(()));
    for (credits, result) in [(2, Ok(())), (3, Err(Refused))] {
        let _ = fixture.hold(&hold).await; // a store may refuse it
        assert_eq!(fixture.spend(&hold, credits).await, result);
        assert_eq!(fixture.totals().await, (8, 0, 2));
    }
}

pub async fn hold_lasts_until_its_expiry<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    let hold = fixture.place(2, 3).await;
    fixture.tick(before(HOLD_TTL)).await;
    assert_eq!(fixture.totals().await, (7, 3, 0));
    assert_eq!(fixture.spend(&hold, 3).await, Ok(()));
}

pub async fn expired_hold_returns_its_credits<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    fixture.place(1, 3).await;
    fixture.tick(START + HOLD_TTL).await;
    assert_eq!(fixture.totals().await, (10, 0, 0));
}

pub async fn expired_hold_cannot_be_spent<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    let hold = fixture.place(1, 3).await;
    // At its expiry, and long after it, when the store may have forgotten the hold.
    for after in [HOLD_TTL, HOLD_TTL * 60] {
        fixture.tick(START + after).await;
        assert_eq!(fixture.spend(&hold, 3).await, Err(Refused));
    }
    assert_eq!(fixture.totals().await, (10, 0, 0));
}

pub async fn expired_hold_can_be_released_and_returns_once<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    let hold = fixture.place(1, 3).await;
    for after in [HOLD_TTL, HOLD_TTL * 60] {
        fixture.tick(START + after).await;
        assert_eq!(fixture.release(&hold).await, Ok(()));
    }
    assert_eq!(fixture.totals().await, (10, 0, 0));
}

/// A settlement that returned `Ok` returns `Ok` while its spend is kept.
pub async fn repeated_spend_succeeds_while_its_spend_is_kept<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    let hold = fixture.place(1, 3).await;
    assert_eq!(fixture.spend(&hold, 3).await, Ok(()));
    for after in [HOLD_TTL, HOLD_TTL * 60] {
        fixture.tick(START + after).await;
        assert_eq!(fixture.spend(&hold, 3).await, Ok(()));
        assert_eq!(fixture.spend(&hold, 2).await, Err(Refused));
        assert_eq!(fixture.release(&hold).await, Err(Refused));
    }
    assert_eq!(fixture.totals().await, (7, 0, 3));
}

pub async fn time_does_not_go_back<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    let hold = fixture.place(1, 3).await;
    fixture.tick(START + HOLD_TTL).await;
    fixture.tick(START).await;
    assert_eq!(fixture.spend(&hold, 3).await, Err(Refused));
    assert_eq!(fixture.totals().await, (10, 0, 0));
}

pub async fn workspaces_are_independent<S: CreditStore>(store: Arc<S>) {
    let a = Fixture::open(store.clone(), 10).await;
    let b = Fixture::open(store, 2).await;
    let hold = a.place(1, 5).await;
    assert_eq!(b.totals().await, (2, 0, 0));
    assert_ne!(b.hold(&b.lookup(1, 5)).await, Ok(Granted), "by the credits of the other workspace");
    assert_eq!(b.spend(&b.lookup(1, 1), 1).await, Err(Refused), "a hold is its workspace's alone");
    assert_eq!(b.hold(&b.lookup(2, 3)).await, Ok(Insufficient(Exhausted)));
    assert_eq!(a.spend(&hold, 5).await, Ok(()));
    assert_eq!(b.spend(&b.lookup(1, 5), 5).await, Err(Refused), "a spend is its workspace's alone");
    b.grant(1).await;
    assert_eq!((a.totals().await, b.totals().await), ((5, 0, 5), (3, 0, 0)));
}

/// Returns the last millisecond before `START + after`.
fn before(after: Duration) -> Timestamp {
    START + (after - Duration::from_millis(1))
}
