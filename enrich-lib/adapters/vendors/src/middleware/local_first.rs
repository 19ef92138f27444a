//! Local sources before those whose results are stored.

use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;

use super::waterfall::Waterfall;

/// Asks local sources for each lookup, and then the others if there is no match. A result that is stored
/// would hide changes of a local source until it expires.
#[derive(derive_more::Debug)]
#[debug("LocalFirst {{ local: {local:?}, .. }}")]
pub(super) struct LocalFirst {
    pub(super) local: Arc<Waterfall>,
    pub(super) stored: Arc<dyn Resolver>,
}

#[async_trait]
impl Resolver for LocalFirst {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let local = self.local.find(query).await;
        if matches!(&local, Ok(answer) if answer.profile.is_some()) {
            return local;
        }
        let stored = self.stored.find(query).await?;
        match local {
            // The person can be in the source that failed.
            Err(error) if stored.profile.is_none() => Err(error),
            _ => Ok(stored),
        }
    }
}
