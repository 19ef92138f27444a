//! Leases that end, and lost replies.

use std::time::Duration;

use enrich_lib::credit::HoldOutcome::{Granted, Insufficient};
use enrich_lib::credit::Settlement::{Release, Spend};
use enrich_lib::ports::Credits;
use enrich_lib::refusal::PortError;
use enrich_postgres::PostgresError;
use enrich_store::StoreError;
use tokio::time::{Instant, sleep, timeout};

use super::world::{LEASE, World, eventually};

/// Returns the error of PostgreSQL because of which a port failed.
fn database_error(error: &PortError) -> Option<&PostgresError> {
    error.downcast_ref::<StoreError>().and_then(StoreError::backend)
}

#[tokio::test(flavor = "multi_thread")]
async fn credits_of_a_crashed_node_return_when_its_lease_expires() {
    let world = World::new().await;
    world.workspace(10).await;
    let (one, two) = (world.node().await, world.node().await);
    world.holding(&one, 10).await;
    one.crash().await;
    let crashed_at = Instant::now();
    let refused = world.hold(&two, 1).await.1;
    assert!(!matches!(refused, Ok(Granted)), "its lookups may still be settled");
    eventually("the credits come back", async || matches!(world.hold(&two, 10).await.1, Ok(Granted))).await;
    assert!(crashed_at.elapsed() < LEASE * 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_402_while_an_unresponsive_node_has_idle_credits() {
    let world = World::new().await;
    world.workspace(10).await;
    let (one, two) = (world.node().await, world.node().await);
    let held = world.holding(&one, 10).await;
    one.ledger.settle(&held, Spend(1)).await.unwrap();
    one.network.cut();
    let undecided = world.hold(&two, 1).await.1.unwrap_err();
    assert!(matches!(database_error(&undecided), Some(PostgresError::Undecided(_))), "{undecided:?}");
    eventually("the lease ends", async || matches!(world.hold(&two, 9).await.1, Ok(Granted))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_workspace_fails_holds_and_keeps_the_connection() {
    let world = World::new().await;
    world.workspace(10).await;
    let node = world.node_with(LEASE, Duration::ZERO).await;
    let held = world.holding(&node, 1).await;
    node.ledger.settle(&held, Spend(1)).await.unwrap();
    let connections = node.network.connections();
    let locker = world.postgres.client(&world.database).await;
    locker.batch_execute("BEGIN; SELECT FROM workspace FOR UPDATE").await.unwrap();
    let failed = world.hold(&node, 10).await.1.unwrap_err();
    let is_lock_timeout =
        |error: &PostgresError| matches!(error, PostgresError::Rejected { code, .. } if code == "55P03");
    assert!(database_error(&failed).is_some_and(is_lock_timeout), "{failed:?}");
    locker.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(world.hold(&node, 9).await.1, Ok(Granted)));
    assert_eq!(node.network.connections(), connections);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_heartbeat_stops_using_its_lease() {
    let world = World::new().await;
    world.workspace(10).await;
    let (one, two) = (world.node().await, world.node().await);
    world.holding(&one, 5).await;
    one.network.cut();
    eventually("its lease ends there", async || world.hold(&one, 0).await.1.is_err()).await;
    eventually("and in the store", async || matches!(world.hold(&two, 10).await.1, Ok(Granted))).await;
}

/// A node measures its lease from when it sent the heartbeat, not from when it received the reply.
#[tokio::test(flavor = "multi_thread")]
async fn lease_expires_at_its_node_first_for_any_reply_delay() {
    let world = World::new().await;
    world.workspace(10).await;
    let node = world.node_with(LEASE, Duration::ZERO).await;
    let held = world.holding(&node, 10).await;
    node.ledger.settle(&held, Release).await.unwrap();
    let lives = || async {
        let select =
            "SELECT count(*), coalesce(max((extract(epoch FROM ends_at) * 1000)::bigint), 0) FROM node
             WHERE ends_at > clock_timestamp()";
        world.postgres.numbers(&world.database, select).await
    };
    // Read first: the reply to a heartbeat in between is not delayed, and another heartbeat follows it.
    let before = lives().await;
    node.network.delay_replies();
    eventually("the store received the heartbeat", async || lives().await[1] > before[1]).await;
    sleep(LEASE / 2).await;
    node.network.drop_requests(); // of the next heartbeat
    node.network.deliver_replies();
    assert!(matches!(world.hold(&node, 1).await.1, Ok(Granted)), "it lives");
    eventually("the lease ends in the store", async || lives().await[0] == 0).await;
    let lookup = world.lookup(&node, 1);
    let late = timeout(LEASE / 10, node.ledger.hold(&lookup)).await;
    assert!(!matches!(late, Ok(Ok(_))), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnected_node_has_a_new_lease() {
    let world = World::new().await;
    world.workspace(10).await;
    let mut node = world.node().await;
    world.holding(&node, 5).await;
    node.network.cut();
    eventually("its lease ends", async || world.hold(&node, 0).await.1.is_err()).await;
    node.network.heal();
    eventually("it has all", async || matches!(world.hold(&node, 10).await.1, Ok(Granted))).await;
    assert_eq!(world.totals().await, [10, 0, 10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_spend_is_charged_once_if_credits_remain() {
    let world = World::new().await;
    world.workspace(10).await;
    let node = world.node().await;
    let held = world.holding(&node, 3).await;
    world.end_all_nodes().await;
    for _ in 0..3 {
        node.ledger.settle(&held, Spend(2)).await.unwrap();
    }
    assert_eq!(world.totals().await[..2], [10, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_spend_is_refused_if_another_node_has_the_credits() {
    let world = World::new().await;
    world.workspace(10).await;
    let (mut one, two) = (world.node().await, world.node().await);
    let held = world.holding(&one, 3).await;
    one.stop_ticking().await;
    world.end_all_nodes().await;
    eventually("the other has all", async || matches!(world.hold(&two, 10).await.1, Ok(Granted))).await;
    assert!(one.ledger.settle(&held, Spend(3)).await.is_err());
    assert_eq!(world.totals().await, [10, 0, 10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_under_an_expired_lease_is_not_repeated() {
    let world = World::new().await;
    world.workspace(10).await;
    let node = world.node().await;
    let held = world.holding(&node, 3).await;
    world.end_all_nodes().await;
    eventually("the node notices", async || node.ledger.hold(&held).await.is_err()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credits_taken_without_a_reply_are_not_lost() {
    let world = World::new().await;
    world.workspace(20).await;
    let (mut one, two) = (world.node().await, world.node().await);
    assert_eq!(world.hold(&one, 21).await.1.unwrap(), Insufficient, "its connections are there");
    one.network.drop_replies();
    assert!(world.hold(&one, 5).await.1.is_err());
    assert!(world.totals().await[2] >= 5, "it has taken them, and does not know");
    one.network.heal();
    eventually("the others get them", async || matches!(world.hold(&two, 20).await.1, Ok(Granted))).await;
    assert_eq!(world.totals().await, [20, 0, 20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_finds_credits_taken_without_a_reply() {
    let world = World::new().await;
    world.workspace(20).await;
    let mut node = world.node().await;
    assert_eq!(world.hold(&node, 21).await.1.unwrap(), Insufficient);
    node.network.drop_replies();
    assert!(world.hold(&node, 20).await.1.is_err());
    node.network.heal();
    eventually("they are there", async || matches!(world.hold(&node, 20).await.1, Ok(Granted))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_node_returns_its_credits() {
    let world = World::new().await;
    world.workspace(10).await;
    let (mut one, two) = (world.node().await, world.node().await);
    let held = world.holding(&one, 8).await;
    one.ledger.settle(&held, Spend(3)).await.unwrap();
    one.stop_ticking().await;
    one.ledger.close().await.unwrap();
    assert_eq!(world.totals().await, [10, 3, 0]);
    assert_eq!(world.hold(&two, 7).await.1.unwrap(), Granted);
}
