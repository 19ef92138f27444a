//! The comparison of a node's clock with PostgreSQL's clock.

use std::time::Duration;

use enrich_host::{Arrivals, SystemArrivals};
use enrich_lib::model::Timestamp;

use super::world::World;

const SECONDS_30: Duration = Duration::from_secs(30);

fn now() -> Timestamp {
    SystemArrivals.arrive().now
}

#[tokio::test]
async fn skew_is_positive_if_the_node_is_ahead() {
    let world = World::new().await;
    let node = world.node().await;
    assert_eq!(node.ledger.clock_skew(), None);
    let skew = node.ledger.compare_clocks(|| now() + SECONDS_30).await.unwrap();
    assert!((20_000..=30_000).contains(&skew.ahead_ms()), "{skew}");
    assert_eq!(node.ledger.clock_skew(), Some(skew));
    let skew = node.ledger.compare_clocks(|| now() - SECONDS_30).await.unwrap();
    assert!((-30_000..=-20_000).contains(&skew.ahead_ms()), "{skew}");
    // The same machine.
    let skew = node.ledger.compare_clocks(now).await.unwrap();
    assert!(skew.size() <= Duration::from_millis(1), "{skew}");
    assert_eq!(node.ledger.clock_skew(), Some(skew));
}
