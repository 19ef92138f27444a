//! An in-memory cache of resolver results.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_store::{EmailHash, EmailHasher};
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A resolver that caches results in memory. Failures are never cached.
///
/// The cache key is a keyed hash of the address in lower case, so a memory dump shows profiles but not the
/// emails that belong to them. Addresses of one mailbox do not share an answer: "no match" of a vendor is only
/// about the address that it received. Many vendors' terms limit how long their results may be stored, so
/// caching is opt-in.
#[derive(Clone, derive_more::Debug)]
#[debug("Cache {{ policy: {policy:?}, .. }}")]
pub struct Cache {
    resolver: Arc<dyn Resolver>,
    hasher: EmailHasher,
    policy: CachePolicy,
    /// Whether `resolver` answers for people who opted out.
    is_decoy: bool,
    entries: Arc<Mutex<LruCache<EmailHash, Entry>>>,
    hits: Arc<AtomicU64>,
    misses: Arc<AtomicU64>,
}

/// The use of a cache at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// The number of lookups that were answered from the cache.
    pub hits: u64,
    /// The number of lookups that were not.
    pub misses: u64,
    /// The number of entries, including expired ones.
    pub entries: usize,
}

/// Cache size and entry lifetimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// Maximum number of entries, of about 200 bytes each. The least recently used entry is evicted.
    pub entries_max: NonZeroUsize,
    /// Lifetime of a match. Zero disables caching of matches.
    pub found_ttl: Duration,
    /// Lifetime of a "no match", usually shorter, as the person may create a profile later. Zero disables
    /// caching of these.
    pub not_found_ttl: Duration,
}

struct Entry {
    answer: Answer,
    is_decoy: bool,
    inserted_at: Instant,
}

impl Cache {
    /// Wraps `resolver` with a cache that follows `policy`.
    pub fn new(resolver: Arc<dyn Resolver>, hasher: EmailHasher, policy: CachePolicy) -> Self {
        // A bounded cache would reserve all of its memory here.
        let entries = Arc::new(Mutex::new(LruCache::unbounded()));
        let (hits, misses) = Default::default();
        Self { resolver, hasher, policy, is_decoy: false, entries, hits, misses }
    }

    /// Returns the same cache for people who opted out. For the lifetime of a "no match", an entry of any kind is
    /// a hit without a match, as it would be for an unknown person. Other lookups do not use the answers of `decoy`.
    pub(crate) fn for_opted_out(&self, decoy: Arc<dyn Resolver>) -> Self {
        Self { resolver: decoy, is_decoy: true, ..self.clone() }
    }

    /// Returns how the cache is used.
    pub fn statistics(&self) -> CacheStatistics {
        let [hits, misses] = [&self.hits, &self.misses].map(|count| count.load(Ordering::Relaxed));
        CacheStatistics { hits, misses, entries: self.entries.lock().len() }
    }

    /// Returns a cached result. Removes it if it has expired or is unusable.
    fn get(&self, hash: &EmailHash) -> Option<Answer> {
        let mut entries = self.entries.lock();
        let entry = entries.get(hash)?;
        let mut answer = if self.is_decoy { Answer::default() } else { entry.answer.clone() };
        answer.is_cached = true;
        let is_expired = entry.inserted_at.elapsed() >= self.policy.ttl(&answer);
        if is_expired || entry.is_decoy && !self.is_decoy {
            entries.pop(hash);
            return None;
        }
        Some(answer)
    }

    fn insert(&self, hash: EmailHash, answer: &Answer) {
        if !self.policy.ttl(answer).is_zero() {
            let entry =
                Entry { answer: answer.clone(), is_decoy: self.is_decoy, inserted_at: Instant::now() };
            let mut entries = self.entries.lock();
            entries.put(hash, entry);
            if entries.len() > self.policy.entries_max.get() {
                entries.pop_lru();
            }
        }
    }
}

impl CachePolicy {
    fn ttl(&self, answer: &Answer) -> Duration {
        if answer.profile.is_some() { self.found_ttl } else { self.not_found_ttl }
    }
}

#[async_trait]
impl Resolver for Cache {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let hash = self.hasher.address_hash(&query.email);
        if let Some(answer) = self.get(&hash) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(answer);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let answer = self.resolver.find(query).await?;
        self.insert(hash, &answer);
        Ok(answer)
    }
}
