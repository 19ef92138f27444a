//! People who opted out are not looked up.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;

use crate::hash::{EmailHash, EmailHasher};

/// A resolver that knows nobody who opted out: it is not even asked about them, so no vendor learns of the lookup.
///
/// If the opt-outs can't be read, the lookup fails: a person who opted out must not be found by accident.
pub struct Suppress {
    resolver: Arc<dyn Resolver>,
    opt_outs: Arc<dyn OptOuts>,
}

/// Knows who opted out.
#[async_trait]
pub trait OptOuts: Send + Sync {
    /// Whether the person behind `email`, in any of its forms, opted out.
    async fn contain(&self, email: &Email) -> Result<bool, PortError>;
}

impl Suppress {
    /// `resolver`, for all but `opt_outs`. Put it around everything that remembers people, such as a
    /// [`Cache`](crate::Cache).
    pub fn new(resolver: Arc<dyn Resolver>, opt_outs: Arc<dyn OptOuts>) -> Self {
        Self { resolver, opt_outs }
    }
}

#[async_trait]
impl Resolver for Suppress {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        if self.opt_outs.contain(&query.email).await? { Ok(None) } else { self.resolver.find(query).await }
    }
}

impl fmt::Debug for Suppress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suppress").finish_non_exhaustive()
    }
}

/// Opt-outs in memory, as the hashes of their emails under one key.
#[derive(Clone, Debug)]
pub struct HashedOptOuts {
    hasher: EmailHasher,
    hashes: BTreeSet<EmailHash>,
}

impl HashedOptOuts {
    /// The people with these `hashes`, which `hasher` made.
    pub fn new(hasher: EmailHasher, hashes: impl IntoIterator<Item = EmailHash>) -> Self {
        Self { hasher, hashes: hashes.into_iter().collect() }
    }
}

#[async_trait]
impl OptOuts for HashedOptOuts {
    async fn contain(&self, email: &Email) -> Result<bool, PortError> {
        Ok(self.hashes.contains(&self.hasher.hash(email)))
    }
}
