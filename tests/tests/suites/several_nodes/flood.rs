//! Clients without keys: a flood of unknown keys must not disturb the known ones.

use enrich_lib::key::ApiKey;
use enrich_lib::ports::Keys;
use enrich_tests::eventually;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::world::{World, applies_within_a_second};

/// The number of concurrent lookups of the flood. Read one by one, they take longer than a lookup waits.
const FLOOD: u64 = 10_000;

fn unknown_key(n: u64) -> ApiKey {
    let (mut bytes, mut at) = (n.to_be_bytes(), 0);
    bytes[0] = 0xff;
    ApiKey::generate(|| {
        at += 1;
        bytes[at % 8].wrapping_add(at as u8)
    })
}

#[tokio::test]
async fn keys_work_during_a_flood_of_unknown_ones() {
    let world = World::with_credits(1).await;
    let known = world.key(1).await;
    let node = world.node().await;
    assert!(node.accepts(&known).await.unwrap());
    world.update_key(&known, "disabled_at = NULL").await; // so that it is read again
    node.ledger.refresh_keys().await.unwrap();
    let new = world.key(2).await;
    let ledger = &node.ledger;
    let strangers = join_all((0..FLOOD).map(|n| async move { ledger.find(&unknown_key(n).digest()).await }));
    let customers = async { tokio::join!(node.accepts(&known), node.accepts(&new)) };
    // All strangers wait when the customers arrive.
    let (strangers, (known, new)) = tokio::join! { biased; strangers, customers };
    assert!(known.unwrap() && new.unwrap());
    // Too many strangers may be answered with 500.
    assert!(strangers.into_iter().flatten().all(|found| found.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn key_created_after_a_miss_is_accepted_within_a_second() {
    let world = World::with_credits(1).await;
    let node = world.node().await;
    let key = ApiKey::generate(|| 7);
    for _ in 0..10 {
        assert!(!node.accepts(&key).await.unwrap());
    }
    world.key(7).await;
    applies_within_a_second("the key is accepted", async || node.accepts(&key).await.ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_unknown_key_needs_few_queries() {
    let world = World::with_credits(1).await;
    let node = world.node().await;
    let unknown = unknown_key(1);
    let scans = "SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes WHERE indexrelname = 'api_key_digest_key'";
    let started = Instant::now();
    for _ in 0..100 {
        let concurrent = join_all((0..100).map(|_| node.accepts(&unknown))).await;
        assert!(concurrent.into_iter().all(|accepted| !accepted.unwrap()));
    }
    let refreshes = started.elapsed().as_millis() as i64 / 50 + 2;
    drop(node);
    eventually("statistics are written", async || world.numbers(scans).await[0] > 0).await;
    assert!(world.numbers(scans).await[0] <= refreshes);
}
