//! Clients without keys: a flood of unknown keys must not disturb the known ones.

use std::sync::atomic::{AtomicU64, Ordering};

use enrich_lib::key::ApiKey;
use enrich_lib::ports::Keys;
use enrich_tests::eventually;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::world::{LONG_TIMEOUT, World, applies_within_a_second};

/// The number of concurrent lookups of the flood: about 20 batches.
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
    let (known, new, unknown) = (world.key(1).await, world.key(2).await, unknown_key(FLOOD));
    let node = world.node_with(LONG_TIMEOUT).await;
    // Both connections are open when the flood begins, and the known key is read again.
    let (known_is_accepted, _) = tokio::join!(node.accepts(&known), node.accepts(&unknown));
    assert!(known_is_accepted.unwrap());
    world.update_key(&known, "disabled_at = NULL").await;
    node.ledger.refresh_keys().await.unwrap();
    let transactions = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let before = world.numbers(transactions).await[0];
    let (ledger, answered) = (&node.ledger, AtomicU64::new(0));
    let unknown_keys = join_all((0..FLOOD).map(async |n| {
        // A lookup with an unknown key may fail during a flood.
        assert!(!ledger.find(&unknown_key(n).digest()).await.is_ok_and(|found| found.is_some()));
        answered.fetch_add(1, Ordering::Relaxed);
    }));
    let known_keys = async {
        let known = async {
            assert!(node.accepts(&known).await.unwrap());
            answered.load(Ordering::Relaxed)
        };
        tokio::join!(known, node.accepts(&new))
    };
    // The unknown keys are queued before the known ones.
    let (_, (answered, new_is_accepted)) = tokio::join! { biased; unknown_keys, known_keys };
    assert!(answered < FLOOD / 2, "{answered} of {FLOOD} unknown keys were read before the known one");
    assert!(new_is_accepted.unwrap());
    drop(node);
    // Sessions report their transactions when they end. Those of a pooler outlive the node.
    let end = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
               WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    world.numbers(end).await;
    assert!(world.numbers(transactions).await[0] - before < FLOOD as i64 / 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_created_after_a_miss_is_accepted_within_a_second() {
    let world = World::with_credits(1).await;
    let node = world.node_with(LONG_TIMEOUT).await;
    let key = ApiKey::generate(|| 7);
    for _ in 0..10 {
        assert!(!node.accepts(&key).await.unwrap());
    }
    drop(world.key(7).await);
    applies_within_a_second("the key is accepted", async || node.accepts(&key).await.ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_keys_need_few_queries() {
    let world = World::with_credits(1).await;
    let (known, unknown) = (world.key(1).await, unknown_key(1));
    let node = world.node_with(LONG_TIMEOUT).await;
    assert!(node.accepts(&known).await.unwrap());
    world.update_key(&known, "disabled_at = NULL").await;
    node.ledger.refresh_keys().await.unwrap();
    let scans = "SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes WHERE indexrelname = 'api_key_digest_key'";
    let started = Instant::now();
    // As all lookups after a stall.
    let concurrent = join_all((0..500).map(|_| node.accepts(&known))).await;
    assert!(concurrent.into_iter().all(Result::unwrap));
    for _ in 0..100 {
        let concurrent = join_all((0..100).map(|_| node.accepts(&unknown))).await;
        assert!(concurrent.into_iter().all(|accepted| !accepted.unwrap()));
    }
    let refreshes = started.elapsed().as_millis() as i64 / 50 + 5;
    drop(node);
    eventually("statistics are written", async || world.numbers(scans).await[0] > 0).await;
    assert!(world.numbers(scans).await[0] <= refreshes);
}
