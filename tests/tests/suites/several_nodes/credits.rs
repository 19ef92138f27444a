//! Credits of one workspace, spent by several nodes.

use std::time::Duration;

use enrich_lib::credit::HoldOutcome::{Granted, Insufficient};
use enrich_lib::credit::Settlement;
use enrich_lib::credit::Shortage::Exhausted;
use enrich_lib::ports::Credits;
use enrich_lib::receipt::Receipt;
use enrich_store::{Actor, Clocks, Ledger as _, StoreError};
use enrich_tests::contract::START;
use futures_util::future::join_all;

use super::world::{LONG_TIMEOUT, World, demo};

/// Their sum in one batch exceeds each number that a store can have.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_holds_of_too_many_credits_take_none() {
    let world = World::with_credits(10).await;
    let node = world.node_with(LONG_TIMEOUT).await;
    for (_, holding) in join_all((0..20).map(|_| world.hold(&node, u64::MAX))).await {
        assert_eq!(holding.unwrap(), Insufficient(Exhausted));
    }
    assert_eq!(world.totals().await, [10, 0, 0]);
    assert!(world.spend(&node).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawal_waits_for_a_hold_that_takes_the_credits() {
    let world = World::with_credits(10).await;
    let holder = world.begin("UPDATE balance SET available = available - 10, version = version + 1").await;
    let mut admin = world.admin().await;
    let withdrawing = tokio::spawn(async move {
        let credits = (-10).try_into().unwrap();
        admin.adjust(&demo(), credits, "entered twice", &Actor::operator(START)).await
    });
    world.statement_waits_for_a_lock().await;
    holder.batch_execute("COMMIT").await.unwrap();
    let result = withdrawing.await.unwrap();
    assert!(matches!(result, Err(StoreError::Overdrawn { available: 0 })), "{result:?}");
}

/// As after a restore that has failed for one table.
#[tokio::test(flavor = "multi_thread")]
async fn check_reports_a_workspace_without_a_balance() {
    let world = World::with_credits(10).await;
    world.sql("DELETE FROM balance").await;
    assert_eq!(world.admin().await.audit().await.unwrap().errors, ["1 workspaces without a balance"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_credits_is_repeated_after_a_conflict() {
    let world = World::with_credits(10).await;
    world
        .sql(
            "CREATE SEQUENCE changes;
             CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF nextval('changes') % 2 = 1 THEN RAISE serialization_failure; END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER conflicts BEFORE INSERT ON credit_grant FOR EACH ROW EXECUTE FUNCTION conflict();
             CREATE TRIGGER conflicts BEFORE INSERT ON credit_hold FOR EACH ROW EXECUTE FUNCTION conflict()",
        )
        .await;
    let mut admin = world.admin().await;
    let operator = Actor::operator(START);
    admin.grant(&demo(), 5, START).await.unwrap();
    for (credits, granted) in [(3, 18), (-4, 14)] {
        let adjusted = admin.adjust(&demo(), credits.try_into().unwrap(), "wrong", &operator).await;
        assert_eq!(adjusted.unwrap().granted, granted, "{credits}");
    }
    world.holding(&world.node_with(LONG_TIMEOUT).await, 1).await; // a statement of a node, too
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_lookups_share_statements() {
    let world = World::with_credits(1_000).await;
    let node = world.node_with(LONG_TIMEOUT).await;
    // The first waits for this lock, and the others form one batch meanwhile.
    let locker = world.begin("LOCK TABLE credit_hold IN ACCESS EXCLUSIVE MODE").await;
    let lookups = (0..200).map(|_| {
        let (ledger, hold) = (node.ledger.clone(), world.lookup(&node, 1));
        tokio::spawn(async move {
            assert_eq!(ledger.hold(&hold).await.unwrap(), Granted);
            ledger.settle(&hold, Settlement::Spend(1)).await.unwrap();
        })
    });
    let lookups: Vec<_> = lookups.collect();
    world.statement_waits_for_a_lock().await;
    locker.batch_execute("COMMIT").await.unwrap();
    for lookup in lookups {
        lookup.await.unwrap();
    }
    let commits = node.ledger.statistics().commits;
    let count: u64 = commits.sizes.buckets.iter().map(|(_, count)| count).sum();
    assert_eq!(commits.sizes.sum, 200);
    assert!(count < 50, "{count} statements for 200 spends");
    assert_eq!(world.totals().await, [1_000, 200, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn receipt_ends_when_it_is_old_by_the_clocks_of_server_and_node() {
    const DAYS: Duration = Duration::from_secs(2 * 86_400);
    let world = World::with_credits(1).await;
    let mut node = world.node_with(LONG_TIMEOUT).await;
    node.stop_ticking().await;
    let mut spent = world.lookup(&node, 1);
    spent.receipt = Some(Receipt::from_bytes([1; 16]));
    node.ledger.hold(&spent).await.unwrap();
    node.ledger.settle(&spent, Settlement::Spend(1)).await.unwrap();
    let now = world.admin().await.clock().await.unwrap().unwrap();
    let older = format!("UPDATE credit_receipt SET at = at - {}", DAYS.as_millis());
    for (make_older, time, is_kept) in
        [("", now + DAYS, true), (older.as_str(), now - DAYS, true), ("", now, false)]
    {
        world.sql(make_older).await;
        let _ = node.ledger.tick(Clocks::simulated(time)).await; // sets the time, although no keys were read
        node.ledger.write_statistics().await.unwrap();
        assert_eq!(world.numbers("SELECT count(*) FROM credit_receipt").await, [i64::from(is_kept)]);
    }
}
