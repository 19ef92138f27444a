//! The store contract for the Redis adapter, on a real server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_host::{Arrivals, SystemArrivals};
use enrich_lib::model::Timestamp;
use enrich_lib::ports::Windows;
use enrich_lib::refusal::PortError;
use enrich_lib::window::Window;
use enrich_redis::{RedisPolicy, RedisWindows};
use enrich_tests::servers::Redis;

mod windows {
    enrich_contract::windows_contract!(super::open);
}

mod shared {
    enrich_contract::shared_contract!(super::open_two);
}

/// A node's windows. Keeps the server running.
struct Node {
    windows: RedisWindows,
    _redis: Arc<Redis>,
}

#[async_trait]
impl Windows for Node {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        self.windows.count(window).await
    }
}

fn node(redis: &Arc<Redis>) -> Arc<dyn Windows> {
    // Long enough that no call times out.
    let policy = RedisPolicy { timeout: Duration::from_secs(20), ..RedisPolicy::default() };
    let windows = RedisWindows::open(&redis.url().parse().unwrap(), policy, 7).unwrap();
    Arc::new(Node { windows, _redis: redis.clone() })
}

async fn open() -> (Arc<dyn Windows>, Timestamp) {
    let redis = Arc::new(Redis::start());
    (node(&redis), SystemArrivals.arrive().now)
}

async fn open_two() -> ([Arc<dyn Windows>; 2], Timestamp) {
    let redis = Arc::new(Redis::start());
    ([node(&redis), node(&redis)], SystemArrivals.arrive().now)
}
