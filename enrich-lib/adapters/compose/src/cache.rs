//! What a vendor was asked a moment ago, it is not asked again.

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

/// A resolver whose answers are remembered for a while, in memory; failures never are.
///
/// The key of an answer is a keyed hash of the canonical email: whoever reads the memory finds profiles, but not whose
/// emails led to them. Many vendors' terms say how long their answers may be kept: nothing is, unless this is asked for.
pub struct Cache {
    resolver: Arc<dyn Resolver>,
    hasher: EmailHasher,
    policy: CachePolicy,
    answers: Mutex<LruCache<EmailHash, Answer>>,
}

/// How much is remembered, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// The most answers, of about 200 bytes each; the one that was not used for longest makes room.
    pub entries_max: NonZeroUsize,
    /// How long a match is remembered. None is, if it is zero.
    pub found_ttl: Duration,
    /// How long it is remembered that there is no match: the person may join tomorrow. Not at all, if it is zero.
    pub not_found_ttl: Duration,
}

struct Answer {
    profile: Option<ProfileUrl>,
    since: Instant,
}

impl Cache {
    /// `resolver`, with a cache by this policy.
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
