//! Rules for receipts: of the lookups with one receipt, at most one pays. Only for stores that keep them
//! ([`Credits::keeps_receipts`](enrich_lib::ports::Credits::keeps_receipts)).

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::HoldOutcome::{Granted, Insufficient};
use enrich_lib::credit::Settlement::Spend;
use enrich_lib::credit::Shortage::Held;
use enrich_lib::receipt::{RECEIPT_TTL, Receipt};

use crate::concurrency::together;
use crate::fixture::{Fixture, Refused, with_bit_flipped};
use crate::{CreditStore, START};

/// Generates the tests of the rules for receipts. `$open` returns a fresh store (`Arc<impl CreditStore>`).
#[macro_export]
macro_rules! receipts_contract {
    ($($open:tt)*) => {
        $crate::rules! { receipts, ($($open)*),
            repetition_takes_no_credits_and_names_the_payer
            receipt_is_kept_for_24_hours_and_ends
            receipt_is_found_by_all_of_its_bytes
            hold_without_credits_fails_after_its_receipt
            concurrent_lookups_with_one_receipt_spend_once
        }
    };
}

pub async fn repetition_takes_no_credits_and_names_the_payer<S: CreditStore>(store: Arc<S>) {
    let Some(fixture) = open(store, 6).await else { return };
    let [first, overlapping, later] = [1, 2, 3].map(|n| fixture.keyed(n, 3, 1));
    assert_eq!(fixture.hold(&first).await, Ok(Granted));
    assert_eq!(fixture.hold(&overlapping).await, Ok(Granted));
    assert_eq!(fixture.totals().await, (0, 6, 0));
    assert_eq!(fixture.settle(&first, Spend(2)).await, Ok(None));
    assert_eq!(fixture.settle(&overlapping, Spend(2)).await, Ok(Some(first.lookup_id)));
    assert_eq!(fixture.totals().await, (4, 0, 2));
    // A workspace without credits can still repeat.
    fixture.place(9, 4).await;
    for _ in 0..2 {
        assert_eq!(fixture.hold(&later).await, Ok(Granted));
        assert_eq!(fixture.settle(&later, Spend(3)).await, Ok(Some(first.lookup_id)));
        assert_eq!(fixture.settle(&first, Spend(2)).await, Ok(None), "a repeated settlement");
        assert_eq!(fixture.totals().await, (0, 4, 2));
    }
    assert_eq!(fixture.hold(&fixture.keyed(4, 1, 2)).await, Ok(Insufficient(Held)), "another receipt");
}

pub async fn receipt_is_kept_for_24_hours_and_ends<S: CreditStore>(store: Arc<S>) {
    let Some(fixture) = open(store, 10).await else { return };
    let [first, within_a_day, next_day, last] = [1, 2, 3, 4].map(|n| fixture.keyed(n, 1, 1));
    assert_eq!(fixture.hold(&first).await, Ok(Granted));
    assert_eq!(fixture.spend(&first, 1).await, Ok(()));
    fixture.tick(START + Duration::from_secs(24 * 60 * 60)).await;
    assert_eq!(fixture.hold(&within_a_day).await, Ok(Granted));
    assert_eq!(fixture.settle(&within_a_day, Spend(1)).await, Ok(Some(first.lookup_id)));
    fixture.tick(START + RECEIPT_TTL + Duration::from_secs(1)).await;
    assert_eq!(fixture.hold(&next_day).await, Ok(Granted));
    assert_eq!(fixture.spend(&next_day, 1).await, Ok(()));
    assert_eq!(fixture.hold(&last).await, Ok(Granted));
    assert_eq!(fixture.settle(&last, Spend(1)).await, Ok(Some(next_day.lookup_id)));
    assert_eq!(fixture.settle(&first, Spend(1)).await, Ok(None), "a repeated settlement");
    assert_eq!(fixture.totals().await, (8, 0, 2));
}

pub async fn receipt_is_found_by_all_of_its_bytes<S: CreditStore>(store: Arc<S>) {
    let Some(fixture) = open(store, 17).await else { return };
    let paid = [1; 16];
    let others = (0..16).map(|byte| with_bit_flipped(paid, byte));
    for (n, receipt) in (0..).zip([paid].into_iter().chain(others)) {
        let mut hold = fixture.lookup(n, 1);
        hold.receipt = Some(Receipt::from_bytes(receipt));
        assert_eq!(fixture.hold(&hold).await, Ok(Granted));
        assert_eq!(fixture.settle(&hold, Spend(1)).await, Ok(None), "{receipt:?} is not {paid:?}");
    }
    assert_eq!(fixture.totals().await, (0, 0, 17));
}

pub async fn hold_without_credits_fails_after_its_receipt<S: CreditStore>(store: Arc<S>) {
    let Some(fixture) = open(store, 10).await else { return };
    let (first, mut repetition, next) =
        (fixture.keyed(1, 1, 1), fixture.keyed(2, 1, 1), fixture.keyed(3, 1, 1));
    repetition.ttl = RECEIPT_TTL * 2;
    assert_eq!(fixture.hold(&first).await, Ok(Granted));
    assert_eq!(fixture.spend(&first, 1).await, Ok(()));
    assert_eq!(fixture.hold(&repetition).await, Ok(Granted));
    fixture.tick(START + RECEIPT_TTL + Duration::from_secs(1)).await;
    assert_eq!(fixture.spend(&repetition, 1).await, Err(Refused));
    assert_eq!(fixture.hold(&next).await, Ok(Granted));
    assert_eq!(fixture.spend(&next, 1).await, Ok(()));
    assert_eq!(fixture.settle(&repetition, Spend(1)).await, Ok(Some(next.lookup_id)));
    assert_eq!(fixture.totals().await, (8, 0, 2));
}

pub async fn concurrent_lookups_with_one_receipt_spend_once<S: CreditStore>(store: Arc<S>) {
    let Some(fixture) = open(store, 100).await.map(Arc::new) else { return };
    let settled = together(|i| {
        let fixture = fixture.clone();
        async move {
            // Eight receipts, in opposite orders.
            let order = (0..8).map(|r| if i % 2 == 0 { r } else { 7 - r });
            let mut payers = [None; 8];
            for receipt in order {
                let hold = fixture.keyed(i * 8 + u32::from(receipt), 1, receipt);
                assert_eq!(fixture.store.credits().hold(&hold).await.unwrap(), Granted);
                let payer = fixture.store.credits().settle(&hold, Spend(1)).await.unwrap();
                payers[usize::from(receipt)] = Some((hold.lookup_id, payer));
            }
            payers
        }
    });
    let settled = settled.await;
    for receipt in 0..8 {
        let lookups: Vec<_> = settled.iter().map(|payers| payers[receipt].unwrap()).collect();
        let paying: Vec<_> = lookups.iter().filter(|(_, payer)| payer.is_none()).map(|(id, _)| *id).collect();
        assert_eq!(paying.len(), 1);
        assert!(lookups.iter().all(|(_, payer)| payer.is_none_or(|payer| payer == paying[0])));
    }
    assert_eq!(fixture.totals().await, (92, 0, 8));
}

/// Creates a workspace, unless the store keeps no receipts.
async fn open<S: CreditStore>(store: Arc<S>, credits: u64) -> Option<Fixture<S>> {
    if store.credits().keeps_receipts() { Some(Fixture::open(store, credits).await) } else { None }
}
