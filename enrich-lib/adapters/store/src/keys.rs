//! The cache of API keys. A request takes one map lookup; the first request with a key takes one query.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use enrich_lib::key::KeyDigest;
use enrich_lib::model::Timestamp;
use enrich_lib::window::Workspace;
use rustc_hash::FxHashSet;

use crate::sync::{Mutex, RwLock};

/// Caches active API keys and records when they were last used.
///
/// Unknown keys are not cached, because clients could fill the cache with them.
#[derive(Debug, Default)]
pub struct KeyCache {
    cached: RwLock<Cached>,
    used: Mutex<Vec<Arc<Entry>>>,
}

#[derive(Debug, Default)]
struct Cached {
    keys: FxHashSet<ByDigest>,
    /// Number of times the cache was cleared. A key read before the cache was cleared must not be inserted afterwards.
    generation: u64,
}

/// An active key, as read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedKey {
    /// The row id of the key.
    pub rowid: i64,
    /// The workspace that the key belongs to.
    pub workspace: Workspace,
    /// When the key expires.
    pub expires_at: Option<Timestamp>,
}

impl CachedKey {
    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}

/// A key is not cached. Created before the key is read from the store, and required to insert it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    generation: u64,
}

/// The last use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The row id of the key.
    pub rowid: i64,
    /// When the key was last used.
    pub at: Timestamp,
}

#[derive(Debug)]
struct Entry {
    digest: KeyDigest,
    key: CachedKey,
    /// Time of the last use, in Unix milliseconds. Not 0 while the key is in the list of used keys.
    last_used_ms: AtomicU64,
}

/// A key, hashed and compared by its digest. A set of pointers stays small even when it is full.
#[derive(Debug)]
struct ByDigest(Arc<Entry>);

impl KeyCache {
    /// Returns the workspace of a cached key, and records its use at `now`.
    ///
    /// Errors: a [`Miss`] if the key is not cached or has expired. Read the key from the store and pass it to
    /// [`KeyCache::insert`].
    pub fn find(&self, digest: &KeyDigest, now: Timestamp) -> Result<Workspace, Miss> {
        let cached = self.cached.read();
        match cached.keys.get(digest) {
            Some(ByDigest(entry)) if !entry.key.has_expired(now) => Ok(self.record_use(entry, now)),
            _ => Err(Miss { generation: cached.generation }),
        }
    }

    /// Returns a [`Miss`] for a key that must be read from the store whether it is cached or not.
    pub fn bypass(&self) -> Miss {
        Miss { generation: self.cached.read().generation }
    }

    /// Inserts a key that was read from the store after `miss`, unless the cache was cleared since then. Records its use at
    /// `now` and returns its workspace.
    pub fn insert(&self, miss: Miss, digest: &KeyDigest, key: CachedKey, now: Timestamp) -> Workspace {
        let entry = Arc::new(Entry { digest: *digest, key, last_used_ms: AtomicU64::new(0) });
        let mut cached = self.cached.write();
        if cached.generation == miss.generation {
            cached.keys.replace(ByDigest(entry.clone()));
        }
        drop(cached);
        self.record_use(&entry, now)
    }

    /// Records a use. The key is added to the list of used keys only once per tick.
    fn record_use(&self, entry: &Arc<Entry>, now: Timestamp) -> Workspace {
        if entry.last_used_ms.load(Ordering::Relaxed) != now.unix_ms()
            && entry.last_used_ms.swap(now.unix_ms(), Ordering::Relaxed) == 0
        {
            self.used.lock().push(entry.clone());
        }
        entry.key.workspace.clone()
    }

    /// Returns up to `count_max` keys used since the last call. The remaining keys follow in the next call.
    pub fn take_used(&self, count_max: usize) -> Vec<KeyUse> {
        let mut used = self.used.lock();
        let count = used.len().min(count_max);
        let later = used.split_off(count);
        let taken = mem::replace(&mut *used, later);
        drop(used);
        let last_use = |entry: Arc<Entry>| {
            let at = Timestamp::from_unix_ms(entry.last_used_ms.swap(0, Ordering::Relaxed));
            KeyUse { rowid: entry.key.rowid, at }
        };
        taken.into_iter().map(last_use).collect()
    }

    /// Clears the cache, because keys may have been revoked.
    pub fn clear(&self) {
        let mut cached = self.cached.write();
        cached.keys.clear();
        cached.generation += 1;
    }
}

impl Borrow<KeyDigest> for ByDigest {
    fn borrow(&self) -> &KeyDigest {
        &self.0.digest
    }
}

impl Hash for ByDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.digest.hash(state);
    }
}

impl PartialEq for ByDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.digest == other.0.digest
    }
}

impl Eq for ByDigest {}

#[cfg(test)]
mod tests {
    use enrich_lib::window::Quota;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_ms(1_000);
    const LATER: Timestamp = Timestamp::from_unix_ms(2_000);

    fn digest(n: u8) -> KeyDigest {
        KeyDigest::from_bytes([n; 32])
    }

    fn key(rowid: i64) -> CachedKey {
        CachedKey {
            rowid,
            workspace: Workspace { id: "demo".parse().unwrap(), quota: Quota::default() },
            expires_at: None,
        }
    }

    #[test]
    fn expired_key_is_a_miss() {
        let cache = KeyCache::default();
        cache.insert(cache.bypass(), &digest(1), CachedKey { expires_at: Some(LATER), ..key(1) }, NOW);
        assert!(cache.find(&digest(1), NOW).is_ok());
        assert!(cache.find(&digest(1), LATER).is_err());
    }

    #[test]
    fn finds_inserted_key_only() {
        let cache = KeyCache::default();
        let miss = cache.find(&digest(1), NOW).unwrap_err();
        let workspace = cache.insert(miss, &digest(1), key(1), NOW);
        assert_eq!(cache.find(&digest(1), NOW), Ok(workspace));
        assert_eq!(cache.find(&digest(2), NOW), Err(miss));
    }

    #[test]
    fn rejects_key_read_before_the_cache_was_cleared() {
        let cache = KeyCache::default();
        let miss = cache.find(&digest(1), NOW).unwrap_err();
        cache.clear();
        cache.insert(miss, &digest(1), key(1), NOW);
        assert!(cache.find(&digest(1), NOW).is_err());
        cache.insert(cache.bypass(), &digest(1), key(1), NOW);
        assert!(cache.find(&digest(1), NOW).is_ok());
        cache.clear();
        assert!(cache.find(&digest(1), NOW).is_err());
    }

    #[test]
    fn reports_each_used_key_once_with_its_last_use() {
        let cache = KeyCache::default();
        for n in 1..=3 {
            cache.insert(cache.bypass(), &digest(n), key(i64::from(n)), NOW);
        }
        cache.find(&digest(1), LATER).unwrap();
        let last_use = |rowid, at| KeyUse { rowid, at };
        assert_eq!(cache.take_used(2), [last_use(1, LATER), last_use(2, NOW)]);
        assert_eq!(cache.take_used(2), [last_use(3, NOW)]);
        assert_eq!(cache.take_used(2), []);
        cache.find(&digest(3), NOW).unwrap();
        assert_eq!(cache.take_used(2), [last_use(3, NOW)]);
    }
}
