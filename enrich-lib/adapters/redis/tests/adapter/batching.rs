//! Counts of a window that arrive during a round trip are sent together.

use std::time::Duration;

use enrich_redis::WindowStoreError;
use tokio::task::JoinSet;
use tokio::time::{advance, timeout};

use crate::world::{Behavior, World, count, window};

/// Starts `many` counts of a workspace's window, in order, and runs them until they block.
async fn start(
    world: &World,
    workspace: &'static str,
    many: usize,
) -> JoinSet<Result<u64, WindowStoreError>> {
    let mut counts = JoinSet::new();
    for _ in 0..many {
        let windows = world.windows.clone();
        counts.spawn(async move { count(&windows, &window(workspace)).await });
    }
    run_until_blocked().await;
    counts
}

/// Runs every task until it blocks, without advancing the time.
async fn run_until_blocked() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn sorted(counts: Vec<Result<u64, WindowStoreError>>) -> Vec<u64> {
    let mut counts: Vec<_> = counts.into_iter().map(Result::unwrap).collect();
    counts.sort_unstable();
    counts
}

#[tokio::test(start_paused = true)]
async fn batches_counts_during_a_round_trip_and_numbers_each() {
    let world = World::new();
    assert_eq!(world.count().await, Ok(1));
    world.set(Behavior::DelaysReplies);
    let first = start(&world, "demo", 1).await;
    let others = start(&world, "demo", 10).await;
    world.set(Behavior::Works);
    assert_eq!(sorted(first.join_all().await), [2]);
    assert_eq!(sorted(others.join_all().await), (3..=12).collect::<Vec<_>>());
    assert_eq!(world.take_round_trips(), [(1, 1), (1, 1), (1, 10)]);
}

#[tokio::test(start_paused = true)]
async fn other_windows_do_not_wait_for_the_round_trip() {
    let world = World::new();
    world.count().await.unwrap();
    world.take_round_trips();
    world.set(Behavior::DelaysReplies);
    let (mine, theirs) = (start(&world, "demo", 1).await, start(&world, "acme", 1).await);
    world.set(Behavior::Works);
    assert_eq!(sorted(mine.join_all().await), [2]);
    assert_eq!(sorted(theirs.join_all().await), [1]);
    assert_eq!(world.take_round_trips(), [(1, 1), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn skips_cancelled_counts() {
    let world = World::new();
    world.count().await.unwrap();
    world.set(Behavior::DelaysReplies);
    let first = start(&world, "demo", 1).await;
    let cancelled = start(&world, "demo", 5).await;
    drop(cancelled);
    let others = start(&world, "demo", 2).await;
    world.set(Behavior::Works);
    assert_eq!(sorted(first.join_all().await), [2]);
    assert_eq!(sorted(others.join_all().await), [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn reports_failed_round_trip_to_every_count() {
    let world = World::new();
    world.count().await.unwrap();
    world.set(Behavior::DelaysReplies);
    let first = start(&world, "demo", 1).await;
    let others = start(&world, "demo", 3).await;
    world.set(Behavior::Fails("OOM command not allowed"));
    sorted(first.join_all().await);
    assert_eq!(others.join_all().await, vec![Err(WindowStoreError::OutOfMemory); 3]);
    world.set(Behavior::Works);
    assert_eq!(world.count().await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn each_count_has_its_own_deadline() {
    let world = World::new();
    world.count().await.unwrap();
    world.set(Behavior::Hangs);
    let _first = start(&world, "demo", 1).await;
    advance(Duration::from_millis(60)).await;
    let mut later = start(&world, "demo", 1).await;
    let waited = timeout(Duration::from_millis(101), later.join_next()).await;
    assert!(waited.unwrap().unwrap().unwrap().is_err());
}
