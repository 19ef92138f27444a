//! Loss of a connection, and reconnecting.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep, timeout};

use crate::world::{Behavior, World, count, window};

const DEADLINE: Duration = Duration::from_millis(100);

/// The caller has a shorter timeout than the adapter, or a client disconnects.
#[tokio::test(start_paused = true)]
async fn drops_hanging_connection_after_caller_left() {
    let world = World::new();
    world.count().await.unwrap();
    world.set(Behavior::DelaysReplies);
    timeout(Duration::from_millis(10), world.count()).await.unwrap_err();
    sleep(DEADLINE).await;
    world.set(Behavior::Works);
    assert_eq!(world.count().await, Ok(3));
    assert_eq!(world.take_round_trips().last(), Some(&(2, 1)));
}

/// Counts on a lost connection time out one after the other, also while the next connection works.
#[tokio::test(start_paused = true)]
async fn late_timeout_of_a_connection_keeps_the_next_one() {
    let world = World::new();
    world.count().await.unwrap();
    world.set(Behavior::Silent);
    let first = async { world.count().await.unwrap_err() };
    let second = async {
        sleep(DEADLINE / 2).await;
        count(&world.windows, &window("acme")).await.unwrap_err()
    };
    let third = async {
        sleep(DEADLINE + Duration::from_millis(1)).await;
        world.set(Behavior::Works);
        world.count().await.unwrap();
        sleep(DEADLINE).await;
        world.count().await.unwrap();
    };
    tokio::join!(first, second, third);
    assert_eq!(world.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn all_counts_wait_for_the_connection_after_one_that_worked() {
    let world = World::new();
    world.count().await.unwrap();
    world.set(Behavior::Fails("READONLY You can't write"));
    world.count().await.unwrap_err();
    world.set(Behavior::Hangs);
    let recovers = async {
        sleep(DEADLINE / 2).await;
        world.set(Behavior::Works);
    };
    let other = window("acme");
    let (one, two, ()) = tokio::join!(world.count(), count(&world.windows, &other), recovers);
    assert_eq!((one, two), (Ok(2), Ok(1)));
}

/// Error codes from the Redis documentation: READONLY (a replica), LOADING (starting), MASTERDOWN (a replica
/// without its master). An error of the command does not affect its connection. Redis 6.2 wraps the errors of a
/// script's commands.
#[tokio::test(start_paused = true)]
async fn reconnects_after_connection_errors_only() {
    for (error, connects) in [
        ("READONLY You can't write", 2),
        ("LOADING Redis is loading", 2),
        ("MASTERDOWN Link with MASTER is down", 2),
        ("ERR", 2),
        ("OOM command not allowed", 1),
        ("NOPERM this user", 1),
        ("WRONGTYPE Operation", 1),
        ("LATE 17", 1),
        ("EARLY 17", 1),
        (
            "ERR Error running script (call to f_0): @user_script:14: @user_script: 14: -OOM command not allowed",
            1,
        ),
        ("ERR Error running script (call to f_0): @user_script:17: WRONGTYPE Operation", 1),
        ("ERR Error running script (call to f_0): @user_script:17: it broke", 2),
    ] {
        let world = World::new();
        world.count().await.unwrap();
        world.set(Behavior::Fails(error));
        assert!(world.count().await.is_err());
        world.set(Behavior::Works);
        assert_eq!((world.count().await, world.connects()), (Ok(2), connects), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn fails_fast_and_backs_off_while_redis_is_down() {
    let world = World::new();
    world.set(Behavior::Down);
    let started = Instant::now();
    for _ in 0..100 {
        let error = world.count().await.unwrap_err();
        assert!(error.to_string().contains("connection refused"), "{error}");
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(world.connects() <= 3, "{} connects in no time", world.connects());
    for _ in 0..600_000 / 5 {
        assert!(world.count().await.is_err());
        advance(Duration::from_millis(5)).await;
    }
    // Half a second between attempts on average.
    assert!((600..3_000).contains(&world.connects()), "{} connects in ten minutes", world.connects());
    world.set(Behavior::Works);
    advance(Duration::from_secs(1)).await;
    assert_eq!(world.count().await, Ok(1), "reconnects within a second");
}

#[tokio::test(start_paused = true)]
async fn only_one_count_waits_while_redis_hangs() {
    let world = World::new();
    world.set(Behavior::Hangs);
    let mut waits = 0;
    let started = Instant::now();
    for _ in 0..10_000 {
        let started = Instant::now();
        world.count().await.unwrap_err();
        assert!(started.elapsed() <= DEADLINE);
        waits += u32::from(!started.elapsed().is_zero());
        advance(Duration::from_millis(1)).await;
    }
    // One wait per attempt to connect, which takes a second. The first few attempts follow each other
    // immediately.
    let seconds = started.elapsed().as_secs();
    assert!(u64::from(waits) <= seconds + 20, "{waits} in {seconds} s");
    world.set(Behavior::Works);
    let recovered = Instant::now();
    while world.count().await.is_err() {
        advance(Duration::from_millis(1)).await;
    }
    assert!(recovered.elapsed() <= Duration::from_secs(2), "{:?}", recovered.elapsed());
}

#[tokio::test(start_paused = true)]
async fn reconnect_times_depend_on_seed() {
    let mut times = Vec::new();
    for seed in 0..10 {
        let world = World::seeded(seed);
        world.set(Behavior::Down);
        let started = Instant::now();
        while world.connects() < 8 {
            world.count().await.unwrap_err();
            advance(Duration::from_millis(1)).await;
        }
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times.dedup();
    assert!(times.len() >= 8, "{times:?}");
}
