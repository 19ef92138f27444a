//! Rules for the removal of old spends.

use std::sync::Arc;

use enrich_contract::Durable;
use enrich_lib::credit::Settlement;
use enrich_lib::receipt::Receipt;
use enrich_store::StoreError;
use enrich_store::records::SpendRow;
use enrich_store::usage::Day;

use super::operator::{Operator, admin, key, today};
use super::{Administered, START};

/// Generates the tests of the rules for the removal of old spends. `$open` returns a fresh store
/// (`Arc<impl Administered + Durable>`).
#[macro_export]
macro_rules! retention_contract {
    ($open:expr) => {
        $crate::rules! { retention, $open,
            removal_keeps_balances_and_usage
            removal_keeps_spends_of_the_day
            removal_keeps_spends_with_a_receipt
            removed_spend_cannot_be_refunded
            refund_of_a_removed_spend_stays
            removal_continues_where_it_stopped
            repeated_spend_is_recognized_while_it_is_kept
        }
    };
}

pub async fn removal_keeps_balances_and_usage<S: Administered + Durable>(store: Arc<S>) {
    let mut operator = with_old_spends(store).await;
    let (balance, usage) = (balance(&operator).await, usage(&mut operator).await);
    assert_eq!(remove(&mut operator, today()).await, 3);
    assert_eq!(self::balance(&operator).await, balance);
    assert_eq!(self::usage(&mut operator).await, usage);
    check_audit(&mut operator).await;
    operator.bill(key(1).digest().key_id(), 1, START).await;
    assert_eq!(self::balance(&operator).await.spent, balance.spent + 1);
    let mut operator = restart(operator).await;
    assert_eq!(self::balance(&operator).await.spent, balance.spent + 1);
    check_audit(&mut operator).await;
}

pub async fn removal_keeps_spends_of_the_day<S: Administered + Durable>(store: Arc<S>) {
    let mut operator = with_old_spends(store).await;
    assert_eq!(remove(&mut operator, today()).await, 3);
    assert_eq!(remove(&mut operator, today()).await, 0);
    let credits: Vec<_> = spends(&mut operator).await.iter().map(|row| row.credits).collect();
    assert_eq!(credits, [4]);
}

pub async fn removal_keeps_spends_with_a_receipt<S: Administered + Durable>(store: Arc<S>) {
    let mut operator = with_old_spends(store).await;
    let mut hold = operator.hold(key(1).digest().key_id(), 1, today().minus(3).starts_at());
    hold.receipt = Some(Receipt::from_bytes([1; 16]));
    operator.store.credits().hold(&hold).await.unwrap();
    assert_eq!(operator.store.credits().settle(&hold, Settlement::Spend(1)).await.unwrap(), None);
    assert_eq!(remove(&mut operator, today()).await, 1, "only the one before it");
    check_audit(&mut operator).await;
}

pub async fn removed_spend_cannot_be_refunded<S: Administered + Durable>(store: Arc<S>) {
    let mut operator = with_old_spends(store).await;
    let first = spends(&mut operator).await[0].lookup_id;
    remove(&mut operator, today()).await;
    let refund = operator.accounts.refund(first, "", &admin()).await;
    assert!(matches!(refund, Err(StoreError::UnknownSpend(id)) if id == first), "{refund:?}");
}

pub async fn refund_of_a_removed_spend_stays<S: Administered + Durable>(store: Arc<S>) {
    let mut operator = with_old_spends(store).await;
    let first = spends(&mut operator).await[0].lookup_id;
    operator.accounts.refund(first, "", &admin()).await.unwrap();
    remove(&mut operator, today()).await;
    let refund = operator.accounts.refund(first, "", &admin()).await;
    assert!(matches!(refund, Err(StoreError::AlreadyRefunded { .. })), "{refund:?}");
    assert_eq!(operator.accounts.grants(&operator.workspace).await.unwrap().len(), 2);
    check_audit(&mut operator).await;
}

pub async fn removal_continues_where_it_stopped<S: Administered + Durable>(store: Arc<S>) {
    let mut operator = with_old_spends(store).await;
    for (days, removed) in [(3, 0), (2, 1), (1, 1), (0, 1)] {
        assert_eq!(remove(&mut operator, today().minus(days)).await, removed, "{days}");
        check_audit(&mut operator).await;
    }
}

pub async fn repeated_spend_is_recognized_while_it_is_kept<S: Administered + Durable>(store: Arc<S>) {
    let mut operator = with_old_spends(store).await;
    let hold = operator.hold(key(1).digest().key_id(), 5, START);
    operator.store.credits().hold(&hold).await.unwrap();
    operator.store.credits().settle(&hold, Settlement::Spend(5)).await.unwrap();
    remove(&mut operator, today()).await;
    let before = balance(&operator).await;
    operator.store.credits().settle(&hold, Settlement::Spend(5)).await.unwrap();
    assert_eq!(balance(&operator).await, before);
}

/// Bills 1, 2 and 3 credits on the three days before the current one, and 4 on this one. A new process
/// serves, so that the totals include all of them.
async fn with_old_spends<S: Administered + Durable>(store: Arc<S>) -> Operator<S> {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    for (credits, days) in [(1, 3), (2, 2), (3, 1), (4, 0)] {
        operator.bill(id, credits, today().minus(days).starts_at()).await;
    }
    operator.store.tick(START).await;
    restart(operator).await
}

/// Crashes the node and starts another one.
async fn restart<S: Administered + Durable>(operator: Operator<S>) -> Operator<S> {
    let store = operator.store.crash().await;
    store.tick(START).await;
    Operator { store, ..operator }
}

async fn remove<S: Administered>(operator: &mut Operator<S>, before: Day) -> u64 {
    operator.accounts.remove_spends(before).await.unwrap()
}

async fn spends<S: Administered>(operator: &mut Operator<S>) -> Vec<SpendRow> {
    let (first, end) = (Day::default().first_lookup(), today().next().first_lookup());
    operator.accounts.spends(&operator.workspace, first, end).await.unwrap().rows
}

async fn usage<S: Administered>(operator: &mut Operator<S>) -> Vec<enrich_store::usage::UsageRow> {
    operator.store.tick(START).await;
    operator.accounts.usage(&operator.workspace, Day::default(), today()).await.unwrap()
}

/// Returns the granted and the spent credits, which no hold changes.
async fn balance<S: Administered>(operator: &Operator<S>) -> enrich_lib::credit::Balance {
    operator.store.tick(START).await;
    operator.store.accounts().await.balance(&operator.workspace).await.unwrap()
}

async fn check_audit<S: Administered>(operator: &mut Operator<S>) {
    operator.store.tick(START).await;
    let audit = operator.accounts.audit().await.unwrap();
    assert!(audit.reconciles(), "{audit:?}");
}
