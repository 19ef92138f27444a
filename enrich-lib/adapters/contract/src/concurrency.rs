//! Rules for concurrent lookups, which together spend exactly the available credits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_lib::credit::{HoldOutcome, Settlement};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fixture::{Fixture, HOLD_TTL};
use crate::{CreditStore, START};

/// Generates the tests of the rules for concurrent lookups. `$open` returns a fresh store
/// (`Arc<impl CreditStore>`).
#[macro_export]
macro_rules! concurrency_contract {
    ($($open:tt)*) => {
        $crate::rules! { concurrency, ($($open)*),
            concurrent_lookups_spend_exactly_the_balance
            concurrent_lookups_never_hold_more_than_the_balance
            concurrent_repeats_of_one_lookup_hold_and_spend_once
            concurrent_spend_and_release_have_one_winner
            concurrent_grants_and_expiries_lose_no_change
        }
    };
}

const TASKS: u32 = 64;

/// The time for which calls are repeated. Those of a store in memory are so short that they rarely overlap.
const REPEATED: Duration = Duration::from_millis(50);
const REPEATED_IN_MEMORY: Duration = Duration::from_millis(400);

/// A balance that takes longer to read is not in memory.
const IN_MEMORY_MAX: Duration = Duration::from_micros(200);

pub async fn concurrent_lookups_spend_exactly_the_balance<S: CreditStore>(store: Arc<S>) {
    let fixture = Arc::new(Fixture::open(store, 100).await);
    let spent = together(|i| {
        let fixture = fixture.clone();
        async move {
            let mut spent = 0;
            for n in 0..4 {
                let lookup = fixture.lookup(i * 4 + n, 1);
                let granted = fixture.store.credits().hold(&lookup).await.unwrap() == HoldOutcome::Granted;
                if granted && fixture.store.credits().settle(&lookup, Settlement::Spend(1)).await.is_ok() {
                    spent += 1;
                }
            }
            spent
        }
    });
    assert_eq!(spent.await.iter().sum::<u64>(), 100);
    assert_eq!(fixture.totals().await, (0, 0, 100));
}

pub async fn concurrent_lookups_never_hold_more_than_the_balance<S: CreditStore>(store: Arc<S>) {
    const CREDITS: u64 = 1 << 20;
    let [one, many] = [Fixture::open(store.clone(), 1).await, Fixture::open(store, CREDITS).await];
    let began = Instant::now();
    one.totals().await;
    let time = if began.elapsed() < IN_MEMORY_MAX { REPEATED_IN_MEMORY } else { REPEATED };
    let (workspaces, held, began) = (Arc::new((one, many)), Arc::new(AtomicU64::new(0)), Instant::now());
    let spent = together(|i| {
        let (workspaces, held) = (workspaces.clone(), held.clone());
        async move {
            let (one, many) = &*workspaces;
            let (credits, mut spent) = (one.store.credits(), 0);
            while spent < 2 || (spent < 10_000 && began.elapsed() < time) {
                let lookup = one.lookup((1 << 20) + i * 10_000 + spent, 1);
                if credits.hold(&lookup).await.unwrap() == HoldOutcome::Granted {
                    assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0, "two lookups hold one credit");
                    held.fetch_sub(1, Ordering::SeqCst);
                    credits.settle(&lookup, Settlement::Release).await.unwrap();
                }
                let spend = many.lookup(i * 10_000 + spent, 2);
                assert_eq!(credits.hold(&spend).await.unwrap(), HoldOutcome::Granted);
                credits.settle(&spend, Settlement::Spend(1)).await.unwrap();
                spent += 1;
            }
            u64::from(spent)
        }
    });
    let spent = spent.await.iter().sum::<u64>();
    let (one, many) = &*workspaces;
    assert_eq!(one.totals().await, (1, 0, 0));
    assert_eq!(many.totals().await, (CREDITS - spent, 0, spent));
}

pub async fn concurrent_repeats_of_one_lookup_hold_and_spend_once<S: CreditStore>(store: Arc<S>) {
    let fixture = Arc::new(Fixture::open(store, 10).await);
    let lookup = fixture.lookup(1, 3);
    let settled = together(|_| {
        let (fixture, lookup) = (fixture.clone(), lookup.clone());
        async move {
            // Refused if another task has already spent the hold. The spend below then repeats that spend.
            let _ = fixture.store.credits().hold(&lookup).await;
            fixture.store.credits().settle(&lookup, Settlement::Spend(2)).await.is_ok()
        }
    });
    assert!(settled.await.iter().all(|ok| *ok));
    assert_eq!(fixture.totals().await, (8, 0, 2));
}

pub async fn concurrent_spend_and_release_have_one_winner<S: CreditStore>(store: Arc<S>) {
    let fixture = Arc::new(Fixture::open(store, 10).await);
    let lookup = fixture.place(1, 3).await;
    let settled = together(|i| {
        let (fixture, lookup) = (fixture.clone(), lookup.clone());
        let settlement = if i % 2 == 0 { Settlement::Spend(3) } else { Settlement::Release };
        async move { fixture.store.credits().settle(&lookup, settlement).await.is_ok() }
    });
    let settled = settled.await;
    let (spends, releases) = (settled.iter().step_by(2), settled.iter().skip(1).step_by(2));
    let totals = fixture.totals().await;
    let is_spent = totals == (7, 0, 3);
    assert!(is_spent || totals == (10, 0, 0), "{totals:?}");
    assert!(spends.cloned().all(|ok| ok == is_spent), "all settlements of the winning kind succeed");
    assert!(releases.cloned().all(|ok| ok != is_spent), "and none of the other");
}

/// Credits are granted and holds expire while other lookups begin and end.
pub async fn concurrent_grants_and_expiries_lose_no_change<S: CreditStore>(store: Arc<S>) {
    let fixture = Arc::new(Fixture::open(store, 1_000).await);
    for n in 0..TASKS {
        fixture.place(n, 2).await;
    }
    let spent = together(|i| {
        let fixture = fixture.clone();
        async move {
            let (store, other) = (&fixture.store, fixture.lookup(TASKS + i, 2));
            match i % 4 {
                0 => store.tick(START + HOLD_TTL).await,
                1 => store.grant(&fixture.workspace, 1).await,
                2 => assert_eq!(store.credits().hold(&other).await.unwrap(), HoldOutcome::Granted),
                _ => {}
            }
            let spend = store.credits().settle(&fixture.lookup(i, 2), Settlement::Spend(2)).await;
            if i % 4 == 2 {
                store.credits().settle(&other, Settlement::Release).await.unwrap();
            }
            u64::from(spend.is_ok())
        }
    });
    let spent = 2 * spent.await.iter().sum::<u64>();
    fixture.store.tick(START + HOLD_TTL).await;
    assert_eq!(fixture.totals().await, (1_000 + u64::from(TASKS / 4) - spent, 0, spent));
}

/// Runs `act` for each of `0..TASKS` in its own task, all started together, and returns the results in order.
pub(crate) async fn together<T, F>(act: impl Fn(u32) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let start = Arc::new(Barrier::new(TASKS as usize));
    for i in 0..TASKS {
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
