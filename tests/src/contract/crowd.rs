//! Rules for concurrent lookups, which together spend exactly the available credits.

use std::sync::Arc;

use enrich_lib::credit::{HoldOutcome, Settlement};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::Store;
use super::desk::Desk;

/// Generates the tests of the rules for concurrent lookups. `$open` returns a fresh store (`Arc<impl Store>`).
#[macro_export]
macro_rules! crowd_contract {
    ($open:expr) => {
        $crate::sentences! { crowd, $open,
            a_crowd_spends_exactly_the_balance
            a_crowd_of_one_lookup_holds_and_spends_once
            of_a_spend_and_a_release_at_once_one_wins
            a_crowd_of_workspaces_keeps_its_accounts_apart
        }
    };
}

const CROWD: u16 = 64;

pub async fn a_crowd_spends_exactly_the_balance<S: Store>(store: Arc<S>) {
    let desk = Arc::new(Desk::open(store, 100).await);
    let spent = together(|i| {
        let desk = desk.clone();
        async move {
            let mut spent = 0;
            for n in 0..4 {
                let lookup = desk.lookup(i * 4 + n, 1);
                let granted = desk.store.credits().hold(&lookup).await.unwrap() == HoldOutcome::Granted;
                if granted && desk.store.credits().settle(&lookup, Settlement::Spend(1)).await.is_ok() {
                    spent += 1;
                }
            }
            spent
        }
    });
    assert_eq!(spent.await.iter().sum::<u64>(), 100);
    assert_eq!(desk.totals().await, (0, 0, 100));
}

pub async fn a_crowd_of_one_lookup_holds_and_spends_once<S: Store>(store: Arc<S>) {
    let desk = Arc::new(Desk::open(store, 10).await);
    let lookup = desk.lookup(1, 3);
    let settled = together(|_| {
        let (desk, lookup) = (desk.clone(), lookup.clone());
        async move {
            // Refused if another task has already spent the hold. The spend below then repeats that spend.
            let _ = desk.store.credits().hold(&lookup).await;
            desk.store.credits().settle(&lookup, Settlement::Spend(2)).await.is_ok()
        }
    });
    assert!(settled.await.iter().all(|ok| *ok));
    assert_eq!(desk.totals().await, (8, 0, 2));
}

pub async fn of_a_spend_and_a_release_at_once_one_wins<S: Store>(store: Arc<S>) {
    let desk = Arc::new(Desk::open(store, 10).await);
    let lookup = desk.holding(1, 3).await;
    let settled = together(|i| {
        let (desk, lookup) = (desk.clone(), lookup.clone());
        let settlement = if i % 2 == 0 { Settlement::Spend(3) } else { Settlement::Release };
        async move { desk.store.credits().settle(&lookup, settlement).await.is_ok() }
    });
    let settled = settled.await;
    let (spends, releases) = (settled.iter().step_by(2), settled.iter().skip(1).step_by(2));
    let totals = desk.totals().await;
    let is_spent = totals == (7, 0, 3);
    assert!(is_spent || totals == (10, 0, 0), "{totals:?}");
    assert!(spends.cloned().all(|ok| ok == is_spent), "all of the winning kind are told so");
    assert!(releases.cloned().all(|ok| ok != is_spent), "and none of the other");
}

pub async fn a_crowd_of_workspaces_keeps_its_accounts_apart<S: Store>(store: Arc<S>) {
    let mut desks = Vec::new();
    for credits in 0..u64::from(CROWD) {
        desks.push(Arc::new(Desk::open(store.clone(), credits).await));
    }
    let spent = together(|i| {
        let desk = desks[usize::from(i)].clone();
        async move {
            let lookup = desk.lookup(i, u64::from(i));
            desk.hold(&lookup).await.is_ok() && desk.spend(&lookup, u64::from(i)).await.is_ok()
        }
    });
    assert!(spent.await.iter().all(|ok| *ok));
    for (credits, desk) in (0..).zip(&desks) {
        assert_eq!(desk.totals().await, (0, 0, credits));
    }
}

/// Runs `act` for each of `0..CROWD` in its own task, all started together, and returns the results in order.
pub(crate) async fn together<T, F>(act: impl Fn(u16) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let start = Arc::new(Barrier::new(usize::from(CROWD)));
    for i in 0..CROWD {
        let (start, acting) = (start.clone(), act(i));
        tasks.spawn(async move {
            start.wait().await;
            (i, acting.await)
        });
    }
    let mut done = tasks.join_all().await;
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, value)| value).collect()
}
