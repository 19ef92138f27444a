//! Holds that expire, and locks that delay only the workspace that they lock.

use std::time::Duration;

use enrich_lib::credit::HoldOutcome::{Granted, Insufficient};
use enrich_lib::credit::Settlement;
use enrich_lib::credit::Settlement::Release;
use enrich_lib::credit::Shortage::Held;
use enrich_lib::ports::Credits;
use enrich_store::Ledger as _;
use enrich_tests::eventually;
use tokio::time::{Instant, timeout};

use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn failed_release_is_repeated() {
    let world = World::with_credits(1).await;
    let node = world.node().await;
    let held = world.holding(&node, 1).await;
    node.network.lose_all();
    assert!(node.ledger.settle(&held, Release).await.is_err());
    let failed_at = Instant::now();
    node.network.heal();
    let other = world.node().await;
    eventually("the credit returns", async || world.spend(&other).await.unwrap()).await;
    assert!(failed_at.elapsed() < held.ttl / 2, "it did not expire");
    assert_eq!(world.totals().await, [1, 1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_of_a_caller_that_has_gone_is_released() {
    let world = World::with_credits(1).await;
    let node = world.node().await;
    let locker = world.begin("SELECT FROM balance FOR UPDATE").await;
    let (ledger, hold) = (node.ledger.clone(), world.lookup(&node, 1));
    let holding = tokio::spawn(async move { ledger.hold(&hold).await });
    world.statement_waits_for_a_lock().await;
    holding.abort();
    locker.batch_execute("COMMIT").await.unwrap();
    assert!(holding.await.unwrap_err().is_cancelled());
    eventually("the credit is available", async || world.spend(&node).await.unwrap()).await;
    assert_eq!(world.totals().await, [1, 1, 0]);
}

/// They are older than those of others, and more than one statement returns.
#[tokio::test(flavor = "multi_thread")]
async fn rests_of_a_locked_workspace_withhold_and_delay_no_others() {
    let world = World::with_credits(1).await;
    world.workspace("locked", 2_000).await;
    let mut node = world.node_with(Duration::from_secs(2)).await;
    node.stop_ticking().await;
    // The first are older.
    world.owe(&["locked"]).await;
    world.owe(&["demo"]).await;
    let locker = world.lock_balances("locked").await;
    // Another node does the same at the same time.
    let _sweep = world.begin("SELECT return_credits(0, 3000, '{demo}')").await;
    // A slow machine may not return credits in time, which is an error.
    eventually("the credit returns", async || {
        world.spend(&node).await.is_ok_and(|spent| {
            assert!(spent);
            true
        })
    })
    .await;
    // Each could wait for 200 ms.
    let others_do_not_wait = async || {
        let spends = async {
            for _ in 0..50 {
                assert!(!world.spend(&node).await.unwrap_or_default());
            }
        };
        timeout(Duration::from_secs(5), spends).await.unwrap();
    };
    others_do_not_wait().await;
    eventually("an error names the workspace", async || {
        let written = node.ledger.write_statistics().await;
        written.is_err_and(|error| error.to_string().contains("to workspace locked for "))
    })
    .await;
    others_do_not_wait().await;
    locker.batch_execute("COMMIT").await.unwrap();
    eventually("they return", async || {
        node.ledger.write_statistics().await.is_ok()
            && world.numbers("SELECT sum(available)::bigint FROM balance").await == [2_000]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_reads_no_version_of_the_balance_that_a_snapshot_keeps() {
    const HOLDS: i64 = 300;
    let world = World::with_credits(HOLDS as u64).await;
    let mut node = world.node().await;
    node.stop_ticking().await;
    let snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT FROM balance";
    let _other = world.begin(snapshot).await;
    for _ in 0..HOLDS {
        world.holding(&node, 1).await;
    }
    let _locker = world.begin("SELECT FROM balance FOR UPDATE").await;
    assert!(world.hold(&node, 1).await.1.is_err());
    drop(node); // a session that ends publishes its statistics
    let read =
        "SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes WHERE relname = 'balance'";
    let read = async || world.numbers(read).await[0];
    eventually("the statistics are published", async || read().await >= HOLDS).await;
    let read = read().await;
    assert!(read < 10 * HOLDS, "{HOLDS} holds read {read} entries of the index");
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_that_is_covered_is_granted_beside_one_that_is_not() {
    let world = World::with_credits(5).await;
    let node = world.node_with(Duration::from_secs(2)).await;
    // All are executed in one batch, in this order.
    let locker = world.begin("LOCK TABLE credit_hold IN ACCESS EXCLUSIVE MODE").await;
    let holds: Vec<_> = [1, 3, 9, 1, 1].map(|credits| world.lookup(&node, credits)).into();
    let outcomes = futures_util::future::join_all(holds.iter().map(|hold| node.ledger.hold(hold)));
    let (outcomes, ()) = tokio::join!(outcomes, async {
        world.statement_waits_for_a_lock().await;
        locker.batch_execute("COMMIT").await.unwrap();
    });
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [Granted, Granted, Insufficient(Held), Granted, Insufficient(Held)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_hold_is_not_repeated_and_its_error_quotes_no_row() {
    let world = World::with_credits(10).await;
    world.sql("ALTER TABLE credit_hold ADD CONSTRAINT seven CHECK (credits <> 7)").await;
    let node = world.node().await;
    let (_, rejected) = world.hold(&node, 7).await;
    let rejected = rejected.unwrap_err().to_string();
    assert!(rejected.ends_with(r#"violates check constraint "seven" (23514)"#), "{rejected}");
    world.holding(&node, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_node_holds_nothing() {
    let world = World::with_credits(10).await;
    let node = world.node().await;
    for settlement in [Settlement::Spend(2), Settlement::Spend(1), Settlement::Release] {
        let hold = world.holding(&node, 2).await;
        node.ledger.settle(&hold, settlement).await.unwrap();
        // A statement that arrives late.
        assert!(settlement == Settlement::Release || node.ledger.hold(&hold).await.is_err());
    }
    node.ledger.close().await.unwrap();
    assert_eq!(world.totals().await, [10, 3, 0]);
    let available = "SELECT available, (SELECT count(*) FROM settlement) FROM balance";
    assert_eq!(world.numbers(available).await, [7, 0], "all settlements are returned and counted");
}
