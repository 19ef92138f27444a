//! Usage that several nodes count.

use std::time::Duration;

use enrich_lib::key::KeyId;
use enrich_lib::model::LookupId;
use enrich_lib::observe::{Ending, LookupEvent};
use enrich_store::Ledger as _;
use enrich_store::usage::{Day, UsageRow};
use enrich_tests::contract::START;
use enrich_tests::eventually;

use super::world::{LONG_TIMEOUT, Node, World, demo, key_id};

#[tokio::test(flavor = "multi_thread")]
async fn closed_node_has_written_its_usage() {
    let world = World::with_credits(0).await;
    for (lookups, sweep_fails) in [(1, false), (2, true)] {
        let mut node = world.node_with(LONG_TIMEOUT).await;
        node.stop_ticking().await;
        count_not_found(&node);
        if sweep_fails {
            world.sql("ALTER TABLE credit_hold RENAME TO hidden").await;
        }
        assert_eq!(node.ledger.close().await.is_err(), sweep_fails);
        assert_eq!(usage(&world).await, [row("not_found", lookups, 0)]);
    }
}

/// More than fit into two statements, the first of which fails once.
#[tokio::test(flavor = "multi_thread")]
async fn usage_of_2500_keys_is_written_completely() {
    const KEYS: u32 = 2_500;
    let world = World::with_credits(0).await;
    let mut node = world.node_with(LONG_TIMEOUT).await;
    node.stop_ticking().await;
    (0..KEYS).for_each(|n| count_not_found_with(&node, KeyId::from_number(n)));
    world.sql("ALTER TABLE usage_day RENAME TO hidden").await;
    assert!(node.ledger.write_statistics().await.is_err());
    world.sql("ALTER TABLE hidden RENAME TO usage_day").await;
    node.ledger.write_statistics().await.unwrap();
    let rows = usage(&world).await;
    assert!(rows.iter().all(|row| row.lookups == 1));
    assert_eq!(rows.len(), KEYS as usize);
}

/// A statement that counts lookups may be executed although its reply is lost.
#[tokio::test(flavor = "multi_thread")]
async fn lookup_is_not_counted_twice_if_a_reply_is_lost() {
    let world = World::with_credits(0).await;
    let mut node = world.node_with(Duration::from_secs(2)).await;
    node.stop_ticking().await;
    count_not_found(&node);
    node.ledger.write_statistics().await.unwrap();
    // The next statement waits for this lock.
    let locker = world.begin("SELECT FROM usage_day FOR UPDATE").await;
    count_not_found(&node);
    let ledger = node.ledger.clone();
    let writing = tokio::spawn(async move { ledger.write_statistics().await });
    world.statement_waits_for_a_lock().await;
    node.network.lose_replies();
    locker.batch_execute("COMMIT").await.unwrap();
    eventually("it is counted", async || usage(&world).await == [row("not_found", 2, 0)]).await;
    assert!(writing.await.unwrap().is_err());
    node.network.heal();
    node.ledger.write_statistics().await.unwrap();
    assert_eq!(usage(&world).await, [row("not_found", 2, 0)]);
}

/// Counts a free lookup.
fn count_not_found(node: &Node) {
    count_not_found_with(node, key_id());
}

fn count_not_found_with(node: &Node, key: KeyId) {
    let (workspace, mut event) = (demo(), LookupEvent::new(LookupId::new(START, [9; 10]), Ending::NotFound));
    (event.workspace, event.key) = (Some(&workspace), Some(key));
    node.ledger.usage().record(&event);
}

async fn usage(world: &World<'_>) -> Vec<UsageRow> {
    let last = Day::from_number(u32::MAX);
    world.admin().await.usage(&demo(), Day::default(), last).await.unwrap()
}

fn row(outcome: &str, lookups: u64, credits: u64) -> UsageRow {
    let key: KeyId = key_id();
    UsageRow { day: Day::from_timestamp(START), key, outcome: outcome.to_owned(), lookups, credits }
}
