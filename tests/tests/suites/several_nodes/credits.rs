//! Credits of one workspace, spent by several nodes.

use std::time::Duration;

use enrich_lib::credit::HoldOutcome::{Granted, Insufficient};
use enrich_lib::credit::Settlement;
use enrich_lib::ports::Credits;

use super::world::{TIMEOUT, World};

#[tokio::test(flavor = "multi_thread")]
async fn last_credit_is_spendable_from_any_node() {
    let world = World::new().await;
    world.workspace(60).await;
    let nodes = [world.node().await, world.node().await, world.node().await];
    for node in &nodes {
        assert!(world.spend(node).await.unwrap(), "and takes a slice that it does not need");
    }
    for _ in 3..60 {
        assert!(world.spend(&nodes[2]).await.unwrap(), "from what the others have, in the end");
    }
    for node in &nodes {
        assert!(!world.spend(node).await.unwrap());
    }
    assert_eq!(world.totals().await, [60, 60, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn alternating_nodes_spend_exactly_the_balance() {
    let world = World::new().await;
    world.workspace(40).await;
    let nodes = [world.node().await, world.node().await, world.node().await];
    let mut spent = 0;
    for node in nodes.iter().cycle().take(60) {
        spent += usize::from(world.spend(node).await.unwrap());
    }
    assert_eq!(spent, 40);
    assert_eq!(world.totals().await, [40, 40, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_of_another_node_are_unavailable() {
    let world = World::new().await;
    world.workspace(10).await;
    let (one, two) = (world.node().await, world.node().await);
    let held = world.holding(&one, 8).await;
    assert_eq!(world.hold(&two, 3).await.1.unwrap(), Insufficient);
    one.ledger.settle(&held, Settlement::Release).await.unwrap();
    assert_eq!(world.hold(&two, 10).await.1.unwrap(), Granted);
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_is_visible_to_every_node_immediately() {
    let world = World::new().await;
    world.workspace(1).await;
    let (one, two) = (world.node().await, world.node().await);
    assert!(world.spend(&one).await.unwrap());
    assert!(!world.spend(&one).await.unwrap() && !world.spend(&two).await.unwrap());
    world.grant(2).await;
    assert!(world.spend(&one).await.unwrap() && world.spend(&two).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn tolerates_clocks_5_s_apart() {
    let world = World::new().await;
    world.workspace(30).await;
    let ahead = world.node_with(TIMEOUT, Duration::from_secs(10)).await;
    let (behind, right) = (world.node().await, world.node_with(TIMEOUT, Duration::from_secs(5)).await);
    let mut spent = 0;
    for node in [&ahead, &behind, &right].into_iter().cycle().take(45) {
        spent += usize::from(world.spend(node).await.unwrap());
    }
    assert_eq!(spent, 30);
    assert_eq!(world.totals().await, [30, 30, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_on_an_empty_workspace_share_queries() {
    let world = World::new().await;
    world.workspace(0).await;
    let node = world.node().await;
    let holds: Vec<_> = (0..200).map(|_| world.lookup(&node, 1)).collect();
    let queries = || async {
        let select = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions WHERE funcname = 'lease_take'";
        world.postgres.numbers(&world.database, select).await[0]
    };
    world.sql(&format!("ALTER DATABASE {} SET track_functions = 'pl'", world.database)).await;
    let counted = world.node().await;
    let results = holds.into_iter().map(|hold| {
        let ledger = counted.ledger.clone();
        tokio::spawn(async move { ledger.hold(&hold).await.unwrap() })
    });
    for answer in results.collect::<Vec<_>>() {
        assert_eq!(answer.await.unwrap(), Insufficient);
    }
    counted.ledger.close().await.unwrap();
    drop((node, counted));
    super::world::eventually("the statistics are written", async || queries().await > 0).await;
    assert!(queries().await < 50, "{} queries for 200 holds", queries().await);
}
