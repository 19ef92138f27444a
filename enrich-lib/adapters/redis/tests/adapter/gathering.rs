//! Counts of a window that arrive during a round trip are sent together.

use std::time::Duration;

use enrich_redis::WindowStoreError;
use tokio::task::JoinSet;
use tokio::time::{advance, timeout};

use crate::world::{Mood, World, count, window};

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
    settle().await;
    counts
}

/// Runs every task until it blocks, without advancing the time.
async fn settle() {
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
async fn counts_that_come_while_one_is_under_way_are_one_round_trip_and_each_gets_its_own() {
    let world = World::new();
    assert_eq!(world.count().await, Ok(1));
    world.set(Mood::Late);
    let first = start(&world, "demo", 1).await;
    let others = start(&world, "demo", 10).await;
    world.set(Mood::Works);
    assert_eq!(sorted(first.join_all().await), [2]);
    assert_eq!(sorted(others.join_all().await), (3..=12).collect::<Vec<_>>());
    assert_eq!(world.take_trips(), [(1, 1), (1, 1), (1, 10)]);
}

#[tokio::test(start_paused = true)]
async fn other_windows_do_not_wait_for_it() {
    let world = World::new();
    world.count().await.unwrap();
    world.take_trips();
    world.set(Mood::Late);
    let (mine, theirs) = (start(&world, "demo", 1).await, start(&world, "acme", 1).await);
    world.set(Mood::Works);
    assert_eq!(sorted(mine.join_all().await), [2]);
    assert_eq!(sorted(theirs.join_all().await), [1]);
    assert_eq!(world.take_trips(), [(1, 1), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_count_that_nobody_waits_for_any_more_is_not_sent() {
    let world = World::new();
    world.count().await.unwrap();
    world.set(Mood::Late);
    let first = start(&world, "demo", 1).await;
    let given_up = start(&world, "demo", 5).await;
    drop(given_up);
    let others = start(&world, "demo", 2).await;
    world.set(Mood::Works);
    assert_eq!(sorted(first.join_all().await), [2]);
    assert_eq!(sorted(others.join_all().await), [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn all_of_a_round_trip_that_fails_are_told() {
    let world = World::new();
    world.count().await.unwrap();
    world.set(Mood::Late);
    let first = start(&world, "demo", 1).await;
    let others = start(&world, "demo", 3).await;
    world.set(Mood::Refuses("OOM command not allowed"));
    sorted(first.join_all().await);
    assert_eq!(others.join_all().await, vec![Err(WindowStoreError::Full); 3]);
    world.set(Mood::Works);
    assert_eq!(world.count().await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn each_has_its_own_deadline_however_long_it_waited_for_the_others() {
    let world = World::new();
    world.count().await.unwrap();
    world.set(Mood::Stuck);
    let _first = start(&world, "demo", 1).await;
    advance(Duration::from_millis(60)).await;
    let mut later = start(&world, "demo", 1).await;
    let waited = timeout(Duration::from_millis(101), later.join_next()).await;
    assert!(waited.unwrap().unwrap().unwrap().is_err());
}
