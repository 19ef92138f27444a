//! A deadline for lookups.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorErrorKind};
use futures_util::FutureExt;
use tokio::time::timeout;

/// A resolver that completes within a budget or fails with [`VendorErrorKind::TimedOut`], in which case the
/// inner call is dropped. A panic of the inner call is a failure, too.
#[derive(derive_more::Debug)]
#[debug("Deadline {{ budget: {budget:?}, .. }}")]
pub struct Deadline {
    resolver: Arc<dyn Resolver>,
    budget: Duration,
}

impl Deadline {
    /// Default budget for finding one person.
    pub const BUDGET: Duration = Duration::from_secs(10);

    /// Wraps `resolver` with a `budget` for each lookup, with a resolution of one millisecond.
    pub fn new(resolver: Arc<dyn Resolver>, budget: Duration) -> Self {
        Self { resolver, budget }
    }
}

#[async_trait]
impl Resolver for Deadline {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        find_within(self.budget, &*self.resolver, query).await
    }
}

/// Calls `resolver` and fails with [`VendorErrorKind::TimedOut`] if it does not complete within `budget`, and
/// with another error if it panics.
pub(crate) async fn find_within(
    budget: Duration,
    resolver: &dyn Resolver,
    query: &Query,
) -> Result<Answer, PortError> {
    let found = timeout(budget, find_without_panic(resolver, query)).await;
    found.unwrap_or_else(|_| Err(VendorErrorKind::TimedOut.into()))
}

/// Calls `resolver` and fails if it panics. The message of the panic is discarded, because it could contain the
/// email.
pub(crate) async fn find_without_panic(resolver: &dyn Resolver, query: &Query) -> Result<Answer, PortError> {
    let found = AssertUnwindSafe(async { resolver.find(query).await }).catch_unwind().await;
    found.unwrap_or_else(|_| Err(PortError::new("the resolver panicked")))
}
