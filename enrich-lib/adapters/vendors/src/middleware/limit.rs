//! A limit on concurrent lookups at a vendor.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorErrorKind};
use tokio::time::timeout;

use super::permits::{Permits, QueueFull};

/// A resolver that runs as many lookups concurrently as there are [`Permits`]. Other lookups wait.
///
/// A lookup that finds no place in the queue fails at once with [`VendorErrorKind::QueueFull`]. One that
/// waits longer than `queue_timeout` fails with [`VendorErrorKind::QueueTimeout`]. Neither is a failure of
/// the vendor.
///
/// Place it around the vendor's [`CircuitBreaker`](super::CircuitBreaker) and [`Deadline`](super::Deadline),
/// so that the deadline starts when the permit is granted.
#[derive(derive_more::Debug)]
#[debug("ConcurrencyLimit {{ permits: {permits:?}, queue_timeout: {queue_timeout:?}, .. }}")]
pub struct ConcurrencyLimit {
    resolver: Arc<dyn Resolver>,
    permits: Arc<Permits>,
    queue_timeout: Duration,
}

impl ConcurrencyLimit {
    /// Limits `resolver` to lookups that hold one of the `permits`.
    pub fn new(resolver: Arc<dyn Resolver>, permits: Arc<Permits>, queue_timeout: Duration) -> Self {
        Self { resolver, permits, queue_timeout }
    }
}

#[async_trait]
impl Resolver for ConcurrencyLimit {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let permit = timeout(self.queue_timeout, self.permits.acquire(&query.workspace)).await;
        let permit = permit.map_err(|_| VendorErrorKind::QueueTimeout)?;
        let _permit = permit.map_err(|QueueFull| VendorErrorKind::QueueFull)?;
        self.resolver.find(query).await
    }
}
