//! Windows on a real Redis server, including failures.

mod access;
mod cluster;
mod counters;
mod failures;

use std::time::{Duration, Instant};

use enrich_host::{Arrivals, SystemArrivals};
use enrich_lib::model::Timestamp;
use enrich_lib::ports::Windows;
use enrich_lib::window::{Quota, Window};
use enrich_redis::{RedisPolicy, RedisUrl, RedisWindows, WindowStoreError};
use enrich_tests::servers::Redis;

/// The timeout for operations that are expected to succeed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a policy with long timeouts, for tests that do not depend on time.
fn long_timeouts() -> RedisPolicy {
    RedisPolicy { timeout: TIMEOUT, connect_timeout: TIMEOUT, ..RedisPolicy::default() }
}

/// Returns a policy with the default timeouts and short pauses, for tests in which Redis does not answer in
/// time.
fn short_timeouts() -> RedisPolicy {
    RedisPolicy { pause_max: Duration::from_millis(100), ..RedisPolicy::default() }
}

fn open(url: &str, policy: RedisPolicy) -> RedisWindows {
    RedisWindows::open(&url.parse::<RedisUrl>().unwrap(), policy, 7).unwrap()
}

/// Starts a server. Returns it with a client, and the window `demo`.
fn start() -> (Redis, RedisWindows, Window) {
    let redis = Redis::start();
    let windows = open(&redis.url(), long_timeouts());
    (redis, windows, window("demo"))
}

fn now() -> Timestamp {
    SystemArrivals.arrive().now
}

/// Returns a window of one day, so that it does not end during a test.
fn window(workspace: &str) -> Window {
    let quota = Quota::new(500, Quota::WINDOW_SECONDS_MAX).unwrap();
    quota.window(&workspace.parse().unwrap(), now())
}

async fn count(windows: &RedisWindows, window: &Window) -> Result<u64, WindowStoreError> {
    windows.count(window).await.map_err(|error| error.downcast_ref::<WindowStoreError>().unwrap().clone())
}

/// Repeats a count until it succeeds and returns it.
async fn recovered(windows: &RedisWindows, window: &Window) -> u64 {
    let started = Instant::now();
    loop {
        match count(windows, window).await {
            Ok(count) => return count,
            Err(fault) => assert!(started.elapsed() < TIMEOUT, "no recovery: {fault}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the fault behind [`WindowStoreError::Unavailable`], which is returned while no reconnect is due.
fn cause(fault: WindowStoreError) -> WindowStoreError {
    match fault {
        WindowStoreError::Unavailable(fault) => cause(*fault),
        fault => fault,
    }
}

/// Returns the Redis key of a window's counter.
fn key(window: &Window) -> String {
    format!("enrich:{{{}}}:{}:{}", window.workspace(), window.closes_at().unix_ms(), window.number())
}
