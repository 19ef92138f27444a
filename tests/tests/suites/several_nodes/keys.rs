//! The keys that a node caches, their revocation, and their last use.

use enrich_tests::eventually;

use super::world::{LONG_TIMEOUT, World, applies_within_a_second};

#[tokio::test(flavor = "multi_thread")]
async fn revocation_causes_no_query_for_other_keys() {
    let world = World::with_credits(1).await;
    let (key, other) = (world.key(1).await, world.key(2).await);
    let node = world.node_with(LONG_TIMEOUT).await;
    for key in [&key, &other] {
        eventually("the key is cached", async || node.accepts(key).await.unwrap()).await;
    }
    world.update_key(&key, "revoked_at = 0").await;
    eventually("the key is refused", async || !node.accepts(&key).await.unwrap()).await;
    // Only its digest was read again.
    world.sql("UPDATE api_key SET digest = sha256(digest) WHERE revoked_at IS NULL").await;
    assert!(node.accepts(&other).await.unwrap());
}

/// A standby that lacks the last change is promoted, or a backup is restored. Before a node that was cut off reads
/// the revision again, another change may have it.
#[tokio::test(flavor = "multi_thread")]
async fn key_of_a_lost_commit_is_refused_within_a_second() {
    for is_cut_off in [false, true] {
        let world = World::with_credits(1).await;
        let key = world.key(1).await;
        world.update_key(&key, "disabled_at = 0").await;
        world.update_key(&key, "disabled_at = NULL").await;
        let node = world.node().await;
        eventually("the key is cached", async || node.accepts(&key).await.unwrap_or(false)).await;
        if is_cut_off {
            node.network.lose_all();
            eventually("the key is outdated", async || node.accepts(&key).await.is_err()).await;
        }
        let lost = if is_cut_off { 0 } else { 1 };
        world
            .sql(&format!(
                "BEGIN; ALTER TABLE api_key DISABLE TRIGGER USER;
                 UPDATE api_key SET disabled_at = 0, revision = revision - {lost}; UPDATE revision SET n = n - {lost}; COMMIT"
            ))
            .await;
        node.network.heal();
        applies_within_a_second("the key is refused", async || Some(!node.accepts(&key).await.ok()?)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shows_when_a_key_was_last_used() {
    let world = World::with_credits(1).await;
    let key = world.key(1).await;
    let node = world.node_with(LONG_TIMEOUT).await;
    let select = "SELECT count(last_used_at) FROM api_key";
    assert_eq!(world.numbers(select).await, [0]);
    eventually("the time of use is visible", async || {
        assert!(node.accepts(&key).await.unwrap());
        world.numbers(select).await == [1]
    })
    .await;
}
