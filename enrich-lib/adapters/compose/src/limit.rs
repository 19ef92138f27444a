//! No more lookups at once than a vendor takes.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::refusal::PortError;
use tokio::sync::Semaphore;

use crate::fault::FaultKind;

/// A resolver that is asked by so many lookups at once and no more. Others wait in a queue, first come, first served;
/// those that find it full fail at once as [`FaultKind::QueueFull`].
pub struct Limit {
    resolver: Arc<dyn Resolver>,
    /// Permits to ask.
    asks: Semaphore,
    /// Permits to be here at all: to ask, or to wait.
    places: Semaphore,
}

impl Limit {
    /// `resolver`, with up to `concurrent_max` lookups that ask (at least one) and up to `queue_max` that wait.
    ///
    /// The queue itself has no deadline: one around this resolver counts the wait in.
    pub fn new(resolver: Arc<dyn Resolver>, concurrent_max: usize, queue_max: usize) -> Self {
        let asks = concurrent_max.clamp(1, Semaphore::MAX_PERMITS);
        let places = asks.saturating_add(queue_max).min(Semaphore::MAX_PERMITS);
        Self { resolver, asks: Semaphore::new(asks), places: Semaphore::new(places) }
    }
}

#[async_trait]
impl Resolver for Limit {
    async fn find(&self, email: &Email) -> Result<Option<ProfileUrl>, PortError> {
        // A permit goes back when it is dropped, wherever this future is dropped.
        let _place = self.places.try_acquire().map_err(|_| FaultKind::QueueFull)?;
        let _ask = self.asks.acquire().await.map_err(PortError::new)?;
        self.resolver.find(email).await
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("asks_left", &self.asks.available_permits())
            .field("places_left", &self.places.available_permits())
            .finish_non_exhaustive()
    }
}
