//! Rules for credits, which are held, then spent or released, as in
//! [`AccountTable`](enrich_lib::memory::AccountTable).
//!
//! They name what gateways get wrong most often. [`machine`](crate::machine) compares all results of random steps.
//!
//! Every step also checks that `granted = available + held + spent`.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::HoldOutcome::{Granted, Insufficient};
use enrich_lib::credit::Settlement::Spend;
use enrich_lib::credit::Shortage::Exhausted;
use enrich_lib::model::{LookupId, Timestamp};

use crate::fixture::{Fixture, HOLD_TTL, Refused, with_bit_flipped};
use crate::{CreditStore, START};

/// Generates the tests of the rules for credits. `$open` returns a fresh store (`Arc<impl CreditStore>`).
#[macro_export]
macro_rules! credits_contract {
    ($($open:tt)*) => {
        $crate::rules! { credits, ($($open)*),
            lookup_holds_once_and_spends_once
            hold_lasts_until_its_expiry
            expired_hold_returns_its_credits
            workspaces_are_independent
            lookup_is_found_by_all_of_its_id
            large_amounts_are_exact
        }
    };
}

/// A call is repeated if its reply is lost.
pub async fn lookup_holds_once_and_spends_once<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    let [spent, released] = [fixture.place(1, 3).await, fixture.place(2, 3).await];
    assert_eq!(fixture.hold(&spent).await, Ok(Granted));
    assert_eq!(fixture.totals().await, (4, 6, 0), "after a repeated hold");
    assert_eq!(fixture.spend(&spent, 4).await, Err(Refused), "more than the hold");
    for _ in 0..2 {
        assert_eq!(fixture.spend(&spent, 2).await, Ok(()));
        assert_eq!(fixture.release(&released).await, Ok(()));
        assert_eq!(fixture.totals().await, (8, 0, 2), "after a repeated settlement");
    }
    assert_eq!(fixture.spend(&released, 3).await, Err(Refused), "after the release");
    assert_eq!(fixture.totals().await, (8, 0, 2), "after the release");
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
    let hold = fixture.place(1, 3).await;
    fixture.tick(START + HOLD_TTL).await;
    assert_eq!(fixture.totals().await, (10, 0, 0));
    fixture.tick(START).await; // time does not go back
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

pub async fn lookup_is_found_by_all_of_its_id<S: CreditStore>(store: Arc<S>) {
    let fixture = Fixture::open(store, 10).await;
    let hold = fixture.place(1, 1).await;
    for is_held in [true, false] {
        for byte in 0..16 {
            let mut other = hold.clone();
            other.lookup_id = LookupId::from_bytes(with_bit_flipped(*hold.lookup_id.as_bytes(), byte));
            let spent = fixture.settle(&other, Spend(1)).await;
            assert_eq!(spent, Err(Refused), "byte {byte} of the id is ignored");
        }
        assert_eq!(fixture.spend(&hold, 1).await, Ok(()), "held: {is_held}");
    }
    assert_eq!(fixture.totals().await, (9, 0, 1));
}

/// A column of 32 bits would truncate the amount, and one of floating-point numbers would round it.
pub async fn large_amounts_are_exact<S: CreditStore>(store: Arc<S>) {
    const CREDITS: u64 = (1 << 53) + 1;
    let fixture = Fixture::open(store, CREDITS).await;
    let hold = fixture.place(1, CREDITS).await;
    assert_eq!(fixture.totals().await, (0, CREDITS, 0));
    assert_eq!(fixture.spend(&hold, CREDITS - 1).await, Ok(()));
    assert_eq!(fixture.totals().await, (1, 0, CREDITS - 1));
}

/// Returns the last millisecond before `START + after`.
fn before(after: Duration) -> Timestamp {
    START + (after - Duration::from_millis(1))
}
