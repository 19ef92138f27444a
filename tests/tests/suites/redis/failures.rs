//! Redis failures: counts fail within their deadline and succeed again as soon as Redis has recovered.

use std::time::Duration;

use enrich_redis::WindowStoreError;
use enrich_tests::eventually;
use enrich_tests::servers::{Redis, RedisOptions};

use super::{cause, count, key, long_timeouts, open, recovered, short_timeouts, start, window};

/// A restart loses the counters, so up to one more limit of requests is admitted in the current window.
#[tokio::test]
async fn counters_restart_with_redis() {
    let (redis, windows, window) = start();
    for expected in 1..=3 {
        assert_eq!(count(&windows, &window).await, Ok(expected));
    }
    redis.kill();
    count(&windows, &window).await.unwrap_err();
    redis.restart();
    assert_eq!(recovered(&windows, &window).await, 1);
}

#[tokio::test]
async fn hanging_redis_times_out_and_its_connection_is_dropped() {
    let redis = Redis::start();
    let (windows, window) = (open(&redis.url(), short_timeouts()), window("demo"));
    assert_eq!(recovered(&windows, &window).await, 1);
    let before = connections(&redis);
    redis.pause();
    let fault = count(&windows, &window).await.unwrap_err();
    assert_eq!(fault, WindowStoreError::TimedOut(Duration::from_millis(100)));
    redis.resume();
    // Redis may have executed the count that timed out, which only counts too many.
    let counted = recovered(&windows, &window).await;
    assert!((2..=3).contains(&counted), "{counted}");
    assert_eq!(redis.ask::<u64>(&format!("GET {}", key(&window))), counted);
    wait_until_closed(&redis, &before).await;
}

/// Waits until Redis has read that the client has closed these connections.
async fn wait_until_closed(redis: &Redis, ids: &[String]) {
    eventually("the connection is closed", async || connections(redis).iter().all(|id| !ids.contains(id)))
        .await;
}

/// Returns the ids of all connections except the operator's.
fn connections(redis: &Redis) -> Vec<String> {
    let list: String = redis.ask("CLIENT LIST");
    let lines = list.lines().filter(|line| !line.contains("cmd=client"));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn rejects_a_replica_until_it_accepts_writes() {
    let (redis, windows, window) = start();
    assert_eq!(count(&windows, &window).await, Ok(1));
    let before = connections(&redis);
    redis.ask::<()>("REPLICAOF 127.0.0.1 1");
    for _ in 0..10 {
        assert_eq!(cause(count(&windows, &window).await.unwrap_err()), WindowStoreError::ReadOnly);
    }
    // The adapter reconnects, because the host name may resolve to the new master by now.
    wait_until_closed(&redis, &before).await;
    redis.ask::<()>("REPLICAOF NO ONE");
    assert_eq!(recovered(&windows, &window).await, 2);
}

#[tokio::test]
async fn full_redis_counts_nothing() {
    let settings = vec![("maxmemory-policy", "noeviction".to_owned())];
    let redis = Redis::with(&RedisOptions { settings, tls: false });
    let (windows, window) = (open(&redis.url(), long_timeouts()), window("demo"));
    assert_eq!(count(&windows, &window).await, Ok(1));
    redis.ask::<()>("CONFIG SET maxmemory 1");
    for _ in 0..2 {
        assert_eq!(count(&windows, &window).await, Err(WindowStoreError::OutOfMemory));
    }
    redis.ask::<()>("CONFIG SET maxmemory 0");
    assert_eq!(count(&windows, &window).await, Ok(2), "the connection is kept");
}
