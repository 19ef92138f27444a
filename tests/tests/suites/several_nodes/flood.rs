//! Clients without keys: a flood of unknown keys must not disturb the known ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use enrich_lib::key::ApiKey;
use enrich_lib::ports::Keys;
use enrich_tests::eventually;
use tokio::time::{Instant, sleep};

use super::world::{World, applies_within_a_second};

/// How long the flood lasts.
const FLOOD: Duration = Duration::from_secs(3);

/// The number of concurrent lookups of the flood.
const CLIENTS: usize = 64;

fn unknown_key(n: u64) -> ApiKey {
    let (mut bytes, mut at) = (n.to_be_bytes(), 0);
    bytes[0] = 0xff;
    ApiKey::generate(|| {
        at += 1;
        bytes[at % 8].wrapping_add(at as u8)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn known_keys_work_during_a_flood_of_unknown_ones() {
    let world = World::new().await;
    world.workspace(100_000).await;
    let (key, revised) = (world.key(1).await, world.key(2).await);
    let node = world.node().await;
    assert!(node.accepts(&key).await.unwrap() && node.accepts(&revised).await.unwrap());
    let (numbers, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let stranger = async || {
        while !is_over.load(Ordering::Relaxed) {
            let key = unknown_key(numbers.fetch_add(1, Ordering::Relaxed));
            // Too many strangers may be answered with 500.
            assert!(!node.ledger.find(&key.digest()).await.is_ok_and(|found| found.is_some()));
            tokio::task::yield_now().await;
        }
    };
    let customer = async || {
        let started = Instant::now();
        while started.elapsed() < FLOOD {
            assert!(node.accepts(&key).await.unwrap());
            assert!(world.spend(&node).await.unwrap());
            // This key is read again.
            world.update_key(&revised, "disabled_at = NULL").await;
            assert!(node.accepts(&revised).await.unwrap());
            sleep(Duration::from_millis(5)).await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let strangers = futures_util::future::join_all((0..CLIENTS).map(|_| stranger()));
    tokio::join!(strangers, customer());
    assert!(numbers.into_inner() > 500, "one connection reads them");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_created_after_a_miss_is_accepted_within_a_second() {
    let world = World::new().await;
    world.workspace(1).await;
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
    let world = World::new().await;
    world.workspace(1).await;
    let node = world.node().await;
    let unknown = unknown_key(1);
    let scans = "SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes WHERE indexrelname = 'api_key_digest_key'";
    let started = Instant::now();
    for _ in 0..10_000 {
        assert!(!node.accepts(&unknown).await.unwrap());
    }
    let refreshes = started.elapsed().as_millis() as i64 / 50 + 2;
    node.crash().await;
    eventually("statistics are written", async || {
        world.postgres.numbers(&world.database, scans).await[0] > 0
    })
    .await;
    assert!(world.postgres.numbers(&world.database, scans).await[0] <= refreshes);
}
