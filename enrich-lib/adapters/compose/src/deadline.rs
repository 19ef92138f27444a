//! An answer in time, or a failure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;

use crate::fault::FaultKind;
use crate::timeout::timeout;

/// A resolver that answers within a budget, or fails as [`FaultKind::TimedOut`]; the ask inside is dropped then.
pub struct Deadline {
    resolver: Arc<dyn Resolver>,
    budget: Duration,
}

impl Deadline {
    /// The budget of a whole lookup, unless the operator sets another.
    pub const BUDGET: Duration = Duration::from_secs(10);

    /// `resolver`, with `budget` for each lookup, counted in milliseconds.
    pub fn new(resolver: Arc<dyn Resolver>, budget: Duration) -> Self {
        Self { resolver, budget }
    }
}

#[async_trait]
impl Resolver for Deadline {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        in_time(self.budget, &*self.resolver, query).await
    }
}

/// What `resolver` finds within `budget`.
pub(crate) async fn in_time(
    budget: Duration,
    resolver: &dyn Resolver,
    query: &Query,
) -> Result<Option<ProfileUrl>, PortError> {
    timeout(budget, resolver.find(query)).await.unwrap_or_else(|| Err(FaultKind::TimedOut.into()))
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadline").field("budget", &self.budget).finish_non_exhaustive()
    }
}
