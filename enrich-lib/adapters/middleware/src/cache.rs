//! An in-memory cache of resolver results.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use lru::LruCache;
use tokio::time::Instant;

use crate::hash::{EmailHash, EmailHasher};
use crate::lock::lock;

/// A resolver that caches results in memory. Failures are never cached.
///
/// The cache key is a keyed hash of the canonical email, so a memory dump shows profiles but not the emails that belong to
/// them. Many vendors' terms limit how long their results may be stored, so caching is opt-in.
pub struct Cache {
    resolver: Arc<dyn Resolver>,
    hasher: EmailHasher,
    policy: CachePolicy,
    answers: Mutex<LruCache<EmailHash, Answer>>,
}

/// Cache size and entry lifetimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// Maximum number of entries, of about 200 bytes each. The least recently used entry is evicted.
    pub entries_max: NonZeroUsize,
    /// Lifetime of a match. Zero disables caching of matches.
    pub found_ttl: Duration,
    /// Lifetime of a "no match", usually shorter, as the person may create a profile later. Zero disables caching of these.
    pub not_found_ttl: Duration,
}

struct Answer {
    profile: Option<ProfileUrl>,
    since: Instant,
}

impl Cache {
    /// Wraps `resolver` with a cache that follows `policy`.
    pub fn new(resolver: Arc<dyn Resolver>, hasher: EmailHasher, policy: CachePolicy) -> Self {
        Self { resolver, hasher, policy, answers: Mutex::new(LruCache::new(policy.entries_max)) }
    }

    fn recall(&self, hash: &EmailHash) -> Option<Option<ProfileUrl>> {
        let mut answers = lock(&self.answers);
        let answer = answers.get(hash)?;
        if answer.since.elapsed() >= self.policy.ttl(&answer.profile) {
            answers.pop(hash);
            return None;
        }
        Some(answer.profile.clone())
    }

    fn remember(&self, hash: EmailHash, profile: &Option<ProfileUrl>) {
        if !self.policy.ttl(profile).is_zero() {
            lock(&self.answers).put(hash, Answer { profile: profile.clone(), since: Instant::now() });
        }
    }
}

impl CachePolicy {
    fn ttl(&self, profile: &Option<ProfileUrl>) -> Duration {
        if profile.is_some() { self.found_ttl } else { self.not_found_ttl }
    }
}

#[async_trait]
impl Resolver for Cache {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        let hash = self.hasher.hash(&query.email);
        if let Some(profile) = self.recall(&hash) {
            return Ok(profile);
        }
        let profile = self.resolver.find(query).await?;
        self.remember(hash, &profile);
        Ok(profile)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("policy", &self.policy).finish_non_exhaustive()
    }
}
