//! Rules for grants, adjustments and refunds.

use std::num::NonZeroI64;
use std::sync::Arc;

use enrich_lib::credit::{AccountError, Balance, HoldOutcome, Settlement, Shortage};
use enrich_lib::model::{LookupId, Timestamp};
use enrich_lib::receipt::Receipt;
use enrich_store::StoreError;
use enrich_store::records::{GrantKind, GrantRow, Refund};
use enrich_store::workspace::WorkspaceChange;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::operator::{Operator, admin, admin_at, after_seconds, key};
use super::{Administered, START};

/// Generates the tests of the rules for grants, adjustments and refunds. `$open` returns a fresh store
/// (`Arc<impl Administered>`).
#[macro_export]
macro_rules! grants_contract {
    ($open:expr) => {
        $crate::rules! { grants, $open,
            grants_are_listed_oldest_first
            adjustment_adds_credits
            adjustment_withdraws_credits_that_a_node_has_in_memory
            adjustment_withdraws_all_available_credits
            held_credits_are_kept_or_cannot_be_spent
            rejected_adjustment_returns_the_credits
            adjustment_of_an_unused_workspace_withdraws_credits
            concurrent_adjustments_withdraw_no_credit_twice
            grant_during_an_adjustment_is_not_lost
            adjustment_above_the_maximum_is_rejected
            refund_returns_the_credits_of_a_lookup
            spend_is_refunded_once
            refund_ends_the_receipt_of_its_spend
            unknown_spend_is_not_refunded
            deleted_workspace_is_neither_adjusted_nor_refunded
            adjustments_and_refunds_are_in_the_audit_log
        }
    };
}

pub async fn grants_are_listed_oldest_first<S: Administered>(store: Arc<S>) {
    let (mut operator, lookup_id) = with_a_spend(store).await;
    operator.accounts.grant(&operator.workspace, 5, after_seconds(1)).await.unwrap();
    adjust_at(&mut operator, 7, after_seconds(2)).await.unwrap();
    operator.accounts.refund(lookup_id, "wrong profile", &admin_at(after_seconds(3))).await.unwrap();
    let grants = operator.accounts.grants(&operator.workspace).await.unwrap();
    let row = |kind, credits, reason: &str, at| GrantRow { kind, credits, reason: reason.to_owned(), at };
    let expected = [
        row(GrantKind::Grant, 100, "", START),
        row(GrantKind::Grant, 5, "", after_seconds(1)),
        row(GrantKind::Adjustment, 7, "typo", after_seconds(2)),
        row(GrantKind::Refund(lookup_id), 3, "wrong profile", after_seconds(3)),
    ];
    assert_eq!(grants, expected);
}

pub async fn adjustment_adds_credits<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let balance = adjust(&mut operator, 5).await.unwrap();
    assert_eq!(balance, Balance { granted: 105, available: 105, held: 0, spent: 0 });
    assert_eq!(on_node(&operator).await, balance);
    check_audit(&mut operator).await;
}

pub async fn adjustment_withdraws_credits_that_a_node_has_in_memory<S: Administered>(store: Arc<S>) {
    let (mut operator, _) = with_a_spend(store).await;
    let balance = adjust(&mut operator, -90).await.unwrap();
    assert_eq!((balance.granted, balance.available, balance.spent), (10, 7, 3));
    assert_eq!(on_node(&operator).await.available, 7);
    let id = key(1).digest().key_id();
    let hold = operator.hold(id, 8, START);
    assert_eq!(
        operator.store.credits().hold(&hold).await.unwrap(),
        HoldOutcome::Insufficient(Shortage::Exhausted)
    );
    operator.bill(id, 7, START).await;
    check_audit(&mut operator).await;
}

pub async fn adjustment_withdraws_all_available_credits<S: Administered>(store: Arc<S>) {
    let (mut operator, _) = with_a_spend(store).await;
    let result = adjust(&mut operator, -98).await;
    assert!(matches!(result, Err(StoreError::Overdrawn { available: 97 })), "{result:?}");
    let balance = adjust(&mut operator, -97).await.unwrap();
    assert_eq!((balance.granted, balance.available, balance.spent), (3, 0, 3));
    assert_eq!(on_node(&operator).await.available, 0);
    check_audit(&mut operator).await;
}

/// A database that has the holds does not withdraw them. Otherwise, the spend fails.
pub async fn held_credits_are_kept_or_cannot_be_spent<S: Administered>(store: Arc<S>) {
    let (mut operator, _) = with_a_spend(store).await;
    let hold = operator.hold(key(1).digest().key_id(), 60, START);
    assert_eq!(operator.store.credits().hold(&hold).await.unwrap(), HoldOutcome::Granted);
    let result = adjust(&mut operator, -40).await;
    let settled = operator.store.credits().settle(&hold, Settlement::Spend(60)).await;
    let balance = on_node(&operator).await;
    let (credits, expected) = match result {
        Err(StoreError::Overdrawn { available: 37 }) => (-37, [63, 0, 63]),
        result => {
            assert_eq!(result.unwrap().granted, 60);
            (-57, [3, 0, 3])
        }
    };
    assert_eq!((settled.is_ok(), balance.spent), (credits == -37, expected[2]));
    adjust(&mut operator, credits).await.unwrap();
    let balance = on_node(&operator).await;
    assert_eq!([balance.granted, balance.available, balance.spent], expected);
    check_audit(&mut operator).await;
}

pub async fn rejected_adjustment_returns_the_credits<S: Administered>(store: Arc<S>) {
    let (mut operator, _) = with_a_spend(store).await;
    for _ in 0..2 {
        adjust(&mut operator, -1_000).await.unwrap_err();
    }
    assert_eq!(on_node(&operator).await.available, 97);
    operator.bill(key(1).digest().key_id(), 97, START).await;
    assert_eq!(operator.last_event().await.0, "key.created");
    check_audit(&mut operator).await;
}

pub async fn adjustment_of_an_unused_workspace_withdraws_credits<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    assert_eq!(adjust(&mut operator, -100).await.unwrap(), Balance::default());
    let hold = operator.hold(key(1).digest().key_id(), 1, START);
    assert_eq!(
        operator.store.credits().hold(&hold).await.unwrap(),
        HoldOutcome::Insufficient(Shortage::Exhausted)
    );
    check_audit(&mut operator).await;
}

pub async fn concurrent_adjustments_withdraw_no_credit_twice<S: Administered>(store: Arc<S>) {
    let (mut operator, _) = with_a_spend(store.clone()).await;
    let adjusting = (0..4).map(|_| {
        let (store, workspace) = (store.clone(), operator.workspace.clone());
        on_own_thread(async move {
            let mut accounts = store.accounts().await;
            let credits = NonZeroI64::new(-30).unwrap();
            accounts.adjust(&workspace, credits, "typo", &admin()).await.is_ok()
        })
    });
    let mut adjusted = 0;
    for adjustment in adjusting.collect::<Vec<_>>() {
        adjusted += i32::from(adjustment.await.unwrap());
    }
    assert!((1..=3).contains(&adjusted), "{adjusted}");
    let balance = on_node(&operator).await;
    assert_eq!(balance.granted, 100 - 30 * adjusted as u64);
    check_audit(&mut operator).await;
}

pub async fn grant_during_an_adjustment_is_not_lost<S: Administered>(store: Arc<S>) {
    let (mut operator, _) = with_a_spend(store.clone()).await;
    let (granting, workspace) = (store.clone(), operator.workspace.clone());
    let granting = on_own_thread(async move {
        let mut accounts = granting.accounts().await;
        for _ in 0..5 {
            accounts.grant(&workspace, 10, START).await.unwrap();
        }
    });
    for _ in 0..5 {
        adjust(&mut operator, -5).await.unwrap();
    }
    granting.await.unwrap();
    let balance = on_node(&operator).await;
    assert_eq!((balance.granted, balance.available), (125, 122));
    check_audit(&mut operator).await;
}

pub async fn adjustment_above_the_maximum_is_rejected<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let result = adjust(&mut operator, i64::MAX).await;
    assert!(matches!(result, Err(StoreError::Account(AccountError::TooLarge))), "{result:?}");
    let result = adjust(&mut operator, i64::MIN + 1).await;
    assert!(matches!(result, Err(StoreError::Overdrawn { available: 100 })), "{result:?}");
}

pub async fn refund_returns_the_credits_of_a_lookup<S: Administered>(store: Arc<S>) {
    let (mut operator, lookup_id) = with_a_spend(store).await;
    let refund = operator.accounts.refund(lookup_id, "", &admin()).await.unwrap();
    let balance = Balance { granted: 103, available: 100, held: 0, spent: 3 };
    assert_eq!(refund, Refund { workspace: operator.workspace.clone(), credits: 3, balance });
    assert_eq!(on_node(&operator).await, balance);
    operator.bill(key(1).digest().key_id(), 100, START).await;
    check_audit(&mut operator).await;
}

pub async fn spend_is_refunded_once<S: Administered>(store: Arc<S>) {
    let (mut operator, lookup_id) = with_a_spend(store).await;
    operator.accounts.refund(lookup_id, "", &admin_at(after_seconds(5))).await.unwrap();
    let again = operator.accounts.refund(lookup_id, "", &admin_at(after_seconds(9))).await;
    let first = after_seconds(5);
    assert!(
        matches!(again, Err(StoreError::AlreadyRefunded { lookup_id: id, at }) if id == lookup_id && at == first),
        "{again:?}"
    );
    assert_eq!(on_node(&operator).await.granted, 103);
}

pub async fn refund_ends_the_receipt_of_its_spend<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let settle = async |operator: &mut Operator<S>| {
        let mut hold = operator.hold(key(1).digest().key_id(), 3, START);
        hold.receipt = Some(Receipt::from_bytes([1; 16]));
        assert_eq!(operator.store.credits().hold(&hold).await.unwrap(), HoldOutcome::Granted);
        (hold.lookup_id, operator.store.credits().settle(&hold, Settlement::Spend(3)).await.unwrap())
    };
    let (first, _) = settle(&mut operator).await;
    assert_eq!(settle(&mut operator).await.1, Some(first));
    operator.accounts.refund(first, "", &admin()).await.unwrap();
    let (next, payer) = settle(&mut operator).await;
    assert_eq!(payer, None);
    assert_eq!(settle(&mut operator).await.1, Some(next));
    assert_eq!(on_node(&operator).await.spent, 6);
    check_audit(&mut operator).await;
}

pub async fn unknown_spend_is_not_refunded<S: Administered>(store: Arc<S>) {
    let (mut operator, _) = with_a_spend(store).await;
    let hold = operator.hold(key(1).digest().key_id(), 1, START);
    operator.store.credits().hold(&hold).await.unwrap();
    operator.store.credits().settle(&hold, Settlement::Release).await.unwrap();
    for lookup_id in [hold.lookup_id, LookupId::new(START, [9; 10])] {
        let refund = operator.accounts.refund(lookup_id, "", &admin()).await;
        assert!(matches!(refund, Err(StoreError::UnknownSpend(id)) if id == lookup_id), "{refund:?}");
    }
    assert_eq!(on_node(&operator).await.granted, 100);
}

pub async fn deleted_workspace_is_neither_adjusted_nor_refunded<S: Administered>(store: Arc<S>) {
    let (mut operator, lookup_id) = with_a_spend(store).await;
    operator
        .accounts
        .change_workspace(&operator.workspace, &[WorkspaceChange::Deleted], &admin())
        .await
        .unwrap();
    let results = [
        adjust(&mut operator, 1).await.map(drop),
        adjust(&mut operator, -1).await.map(drop),
        operator.accounts.refund(lookup_id, "", &admin()).await.map(drop),
    ];
    for result in results {
        assert!(matches!(result, Err(StoreError::WorkspaceDeleted(_))), "{result:?}");
    }
}

pub async fn adjustments_and_refunds_are_in_the_audit_log<S: Administered>(store: Arc<S>) {
    let (mut operator, lookup_id) = with_a_spend(store).await;
    adjust(&mut operator, 5).await.unwrap();
    assert_eq!(operator.last_event().await, ("credits.adjusted".to_owned(), "+5: typo".to_owned()));
    adjust(&mut operator, -5).await.unwrap();
    assert_eq!(operator.last_event().await, ("credits.adjusted".to_owned(), "-5: typo".to_owned()));
    operator.accounts.refund(lookup_id, "", &admin()).await.unwrap();
    assert_eq!(operator.last_event().await, ("credits.refunded".to_owned(), lookup_id.to_string()));
}

/// Creates a key and bills 3 of the 100 credits. Returns the lookup.
async fn with_a_spend<S: Administered>(store: Arc<S>) -> (Operator<S>, LookupId) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    let hold = operator.hold(id, 3, START);
    assert_eq!(operator.store.credits().hold(&hold).await.unwrap(), HoldOutcome::Granted);
    operator.store.credits().settle(&hold, Settlement::Spend(3)).await.unwrap();
    (operator, hold.lookup_id)
}

async fn adjust<S: Administered>(operator: &mut Operator<S>, credits: i64) -> Result<Balance, StoreError> {
    adjust_at(operator, credits, START).await
}

async fn adjust_at<S: Administered>(
    operator: &mut Operator<S>,
    credits: i64,
    now: Timestamp,
) -> Result<Balance, StoreError> {
    let credits = NonZeroI64::new(credits).unwrap();
    operator.accounts.adjust(&operator.workspace, credits, "typo", &admin_at(now)).await
}

/// Runs the operation of another process. SQLite's block their thread.
fn on_own_thread<T: Send + 'static>(operation: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(operation))
}

async fn on_node<S: Administered>(operator: &Operator<S>) -> Balance {
    operator.store.tick(START).await;
    operator.store.balance(&operator.workspace).await
}

async fn check_audit<S: Administered>(operator: &mut Operator<S>) {
    operator.store.tick(START).await;
    let audit = operator.accounts.audit().await.unwrap();
    assert!(audit.reconciles(), "{audit:?}");
}
