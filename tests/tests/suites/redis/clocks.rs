//! The comparison of a node's clock with Redis's clock.

use std::time::Duration;

use enrich_redis::WindowStoreError;
use enrich_tests::servers::Redis;

use super::{long_timeouts, now, open};

const SECONDS_30: Duration = Duration::from_secs(30);

#[tokio::test]
async fn skew_is_positive_if_the_node_is_ahead() {
    let redis = Redis::start();
    let windows = open(&redis.url(), long_timeouts());
    assert_eq!(windows.clock_skew(), None);
    let skew = windows.compare_clocks(|| now() + SECONDS_30).await.unwrap();
    assert!((20_000..=30_000).contains(&skew.ahead_ms()), "{skew}");
    assert_eq!(windows.clock_skew(), Some(skew));
    let skew = windows.compare_clocks(|| now() - SECONDS_30).await.unwrap();
    assert!((-30_000..=-20_000).contains(&skew.ahead_ms()), "{skew}");
    assert_eq!(windows.clock_skew(), Some(skew));
    // The same machine.
    let skew = windows.compare_clocks(now).await.unwrap();
    assert!(skew.size() <= Duration::from_millis(1), "{skew}");
}

#[tokio::test]
async fn last_skew_remains_while_redis_is_down() {
    let redis = Redis::start();
    let windows = open(&redis.url(), long_timeouts());
    let skew = windows.compare_clocks(|| now() + SECONDS_30).await.unwrap();
    redis.kill();
    let fault = windows.compare_clocks(now).await.unwrap_err();
    assert!(matches!(fault, WindowStoreError::Unreachable(_)), "{fault}");
    assert_eq!(windows.clock_skew(), Some(skew));
}
