//! A filter for people who opted out.

use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, OptOuts};

/// A resolver that returns no match for people who opted out. It does not call the inner resolver for them,
/// so no vendor receives the request. In a [`ResolverStack`](super::ResolverStack) with vendors, this takes
/// as long as for an unknown person.
///
/// If the opt-out list cannot be read, the lookup fails, so that a person who opted out is never returned by
/// accident.
#[derive(derive_more::Debug)]
#[debug("OptOutFilter {{ .. }}")]
pub struct OptOutFilter {
    resolver: Arc<dyn Resolver>,
    opt_outs: Arc<dyn OptOuts>,
    /// Called instead of `resolver` for people who opted out.
    decoy: Option<Arc<dyn Resolver>>,
}

impl OptOutFilter {
    /// Wraps `resolver` with the list `opt_outs`. Place it around every layer that stores results, such as a
    /// [`Cache`](super::Cache).
    pub fn new(resolver: Arc<dyn Resolver>, opt_outs: Arc<dyn OptOuts>) -> Self {
        Self { resolver, opt_outs, decoy: None }
    }

    /// Sets the resolver that is called for people who opted out. It never finds a person.
    pub(crate) fn with_decoy(self, decoy: Arc<dyn Resolver>) -> Self {
        Self { decoy: Some(decoy), ..self }
    }
}

#[async_trait]
impl Resolver for OptOutFilter {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        if self.opt_outs.contains(&query.email).await? {
            return match &self.decoy {
                Some(decoy) => decoy.find(query).await,
                None => Ok(Answer::default()),
            };
        }
        let found = self.resolver.find(query).await?;
        // The person may have opted out while a vendor was answering.
        let has_opted_out = found.profile.is_some() && self.opt_outs.contains(&query.email).await?;
        Ok(if has_opted_out { Answer::default() } else { found })
    }
}
