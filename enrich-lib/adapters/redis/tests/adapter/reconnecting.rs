//! Loss of a connection, and reconnecting.

use std::time::Duration;

use enrich_redis::WindowStoreError;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::world::{Mood, World};

const DEADLINE: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn nothing_is_connected_to_before_the_first_count() {
    let world = World::new();
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(world.tries(), 0);
    assert_eq!(world.count().await, Ok(1));
    assert_eq!(world.count().await, Ok(2));
    assert_eq!(world.tries(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_count_ends_at_its_deadline_and_its_connection_is_not_used_again() {
    let world = World::new();
    assert_eq!(world.count().await, Ok(1));
    world.set(Mood::Late);
    let started = Instant::now();
    assert_eq!(world.count().await, Err(WindowStoreError::TimedOut(DEADLINE)));
    assert_eq!(started.elapsed(), DEADLINE);
    world.set(Mood::Works);
    // The count with the late reply was made. The error is on the safe side.
    assert_eq!(world.count().await, Ok(3));
    assert_eq!(world.take_trips(), [(1, 1), (1, 1), (2, 1)], "the third on a connection of its own");
}

/// The caller has a shorter timeout than the adapter, or a client disconnects.
#[tokio::test(start_paused = true)]
async fn a_connection_that_hangs_is_given_up_even_if_nobody_waits_so_long() {
    let world = World::new();
    world.count().await.unwrap();
    world.set(Mood::Late);
    timeout(Duration::from_millis(10), world.count()).await.unwrap_err();
    sleep(DEADLINE).await;
    world.set(Mood::Works);
    assert_eq!(world.count().await, Ok(3));
    assert_eq!(world.take_trips().last(), Some(&(2, 1)));
}

/// Error codes from the Redis documentation: READONLY (a replica), LOADING (starting), MASTERDOWN (a replica without its
/// master).
#[tokio::test(start_paused = true)]
async fn a_server_that_takes_no_writes_is_connected_to_anew() {
    for error in
        ["READONLY You can't write", "LOADING Redis is loading", "MASTERDOWN Link with MASTER is down", "ERR"]
    {
        let world = World::new();
        world.count().await.unwrap();
        world.set(Mood::Refuses(error));
        assert!(world.count().await.is_err());
        world.set(Mood::Works);
        assert_eq!(world.count().await, Ok(2), "{error}");
        assert_eq!(world.tries(), 2, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_another_connection_would_meet_too_keeps_this_one() {
    for error in ["OOM command not allowed", "NOPERM this user", "WRONGTYPE Operation", "CLOCK 17"] {
        let world = World::new();
        world.count().await.unwrap();
        world.set(Mood::Refuses(error));
        assert!(world.count().await.is_err());
        world.set(Mood::Works);
        assert_eq!(world.count().await, Ok(2), "{error}");
        assert_eq!(world.tries(), 1, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redis_that_is_down_is_tried_now_and_then_and_costs_no_time() {
    let world = World::new();
    world.set(Mood::Down);
    let started = Instant::now();
    for _ in 0..100 {
        let error = world.count().await.unwrap_err();
        assert!(error.to_string().contains("connection refused"), "{error}");
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(world.tries() <= 3, "{} tries in no time", world.tries());
    for _ in 0..600_000 / 5 {
        assert!(world.count().await.is_err());
        advance(Duration::from_millis(5)).await;
    }
    // Half a second between attempts on average.
    assert!((600..3_000).contains(&world.tries()), "{} tries in ten minutes", world.tries());
    world.set(Mood::Works);
    advance(Duration::from_secs(1)).await;
    assert_eq!(world.count().await, Ok(1), "at most a second after it is there");
}

#[tokio::test(start_paused = true)]
async fn a_redis_that_accepts_and_never_answers_lets_one_count_wait_at_a_time() {
    let world = World::new();
    world.set(Mood::Stuck);
    let mut waits = 0;
    let started = Instant::now();
    for _ in 0..10_000 {
        let asked = Instant::now();
        world.count().await.unwrap_err();
        assert!(asked.elapsed() <= DEADLINE);
        waits += u32::from(!asked.elapsed().is_zero());
        advance(Duration::from_millis(1)).await;
    }
    // One wait per attempt to connect, which takes a second. The first few attempts follow each other immediately.
    let seconds = started.elapsed().as_secs();
    assert!(u64::from(waits) <= seconds + 20, "{waits} in {seconds} s");
    world.set(Mood::Works);
    let healed = Instant::now();
    while world.count().await.is_err() {
        advance(Duration::from_millis(1)).await;
    }
    assert!(healed.elapsed() <= Duration::from_secs(2), "{:?}", healed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nodes_with_other_seeds_come_back_at_other_times() {
    let mut times = Vec::new();
    for seed in 0..10 {
        let world = World::seeded(seed);
        world.set(Mood::Down);
        let started = Instant::now();
        while world.tries() < 8 {
            world.count().await.unwrap_err();
            advance(Duration::from_millis(1)).await;
        }
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times.dedup();
    assert!(times.len() >= 8, "{times:?}");
}
