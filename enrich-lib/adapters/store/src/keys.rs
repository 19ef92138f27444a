//! The cache of API keys. A request takes one map lookup; the first request with a key takes one query.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use enrich_lib::key::KeyDigest;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::window::Workspace;
use rustc_hash::FxHashSet;

use crate::sync::{Mutex, RwLock};

/// How often the last use of a key is reported, in milliseconds.
const USE_INTERVAL_MS: u64 = 60_000;

/// The maximum number of unknown keys that are remembered.
const UNKNOWN_MAX: usize = 4_096;

/// Caches active API keys and records when they were last used.
///
/// Unknown keys are remembered as well, but separately and briefly, because clients can invent any number of
/// them. They never displace an active key.
#[derive(Debug, Default)]
pub struct KeyCache {
    cached: RwLock<Cached>,
    used: Mutex<Vec<Arc<Entry>>>,
}

#[derive(Debug, Default)]
struct Cached {
    /// The keys that were active when they were read last.
    keys: FxHashSet<ByDigest>,
    unknown: FxHashSet<KeyDigest>,
    /// Incremented whenever keys are cleared. A key read before must not be inserted afterwards.
    version: u64,
    /// The version when all keys were cleared. Keys that were inserted before must be read again.
    cleared_at: u64,
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

/// The answer of the cache for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cache {
    /// The key is active.
    Active(Workspace),
    /// The store has no such key, or the key is not active.
    Unknown,
    /// The key must be read from the store.
    Miss(Miss),
}

/// A key that must be read from the store. Created before the key is read, and required to insert it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    version: u64,
    /// True if the key was active when it was read last.
    pub was_active: bool,
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
    /// The version of the cache when the key was inserted; [`CLEARED`] if the key was cleared since then.
    version: AtomicU64,
    /// Time of the last use, in Unix milliseconds. Not 0 while the key is in the list of used keys.
    last_used_ms: AtomicU64,
    /// The last use that was reported, in Unix milliseconds, or [`NEVER`].
    reported_ms: AtomicU64,
}

const CLEARED: u64 = u64::MAX;

const NEVER: u64 = u64::MAX;

/// A key, hashed and compared by its digest. A set of pointers stays small even when it is full.
#[derive(Debug)]
struct ByDigest(Arc<Entry>);

impl KeyCache {
    /// Looks a key up, and records the use of an active one at `now`.
    ///
    /// After a [`Cache::Miss`], read the key from the store and pass it to [`KeyCache::insert`].
    pub fn find(&self, digest: &KeyDigest, now: Timestamp) -> Cache {
        let cached = self.cached.read();
        match cached.keys.get(digest) {
            Some(ByDigest(entry)) if cached.is_current(entry) && !entry.key.has_expired(now) => {
                self.record_use(entry, now);
                Cache::Active(entry.key.workspace.clone())
            }
            None if cached.unknown.contains(digest) => Cache::Unknown,
            entry => Cache::Miss(Miss { version: cached.version, was_active: entry.is_some() }),
        }
    }

    /// Returns a [`Miss`] for a key that must be read from the store whether it is cached or not.
    pub fn bypass(&self, digest: &KeyDigest) -> Miss {
        let cached = self.cached.read();
        Miss { version: cached.version, was_active: cached.keys.contains(digest) }
    }

    /// Inserts what was read from the store after `miss`: an active key, or `None`. Keys that were cleared
    /// since then are not inserted. Records the use of an active key at `now` and returns its workspace.
    pub fn insert(
        &self,
        miss: Miss,
        digest: &KeyDigest,
        key: Option<CachedKey>,
        now: Timestamp,
    ) -> Option<Workspace> {
        let mut cached = self.cached.write();
        let is_current = cached.version == miss.version;
        let Some(key) = key else {
            if is_current {
                cached.keys.remove(digest);
            }
            if is_current && cached.unknown.len() < UNKNOWN_MAX {
                cached.unknown.insert(*digest);
            }
            return None;
        };
        let workspace = key.workspace.clone();
        let reported_ms = cached
            .keys
            .get(digest)
            .map_or(NEVER, |ByDigest(entry)| entry.reported_ms.load(Ordering::Relaxed));
        let entry = Arc::new(Entry {
            digest: *digest,
            key,
            version: AtomicU64::new(miss.version),
            last_used_ms: AtomicU64::new(0),
            reported_ms: AtomicU64::new(reported_ms),
        });
        if is_current {
            cached.unknown.remove(digest);
            cached.keys.replace(ByDigest(entry.clone()));
        }
        drop(cached);
        self.record_use(&entry, now);
        Some(workspace)
    }

    /// Records a use, unless one was reported within [`USE_INTERVAL_MS`]. The key is added to the list of
    /// used keys only once.
    fn record_use(&self, entry: &Arc<Entry>, now: Timestamp) {
        let now = now.unix_ms();
        if entry.last_used_ms.load(Ordering::Relaxed) != now
            && entry.reported_ms.load(Ordering::Relaxed).abs_diff(now) >= USE_INTERVAL_MS
            && entry.last_used_ms.swap(now, Ordering::Relaxed) == 0
        {
            self.used.lock().push(entry.clone());
        }
    }

    /// Returns up to `count_max` keys used since the last call, each at most once a minute. The remaining
    /// keys follow in the next call.
    pub fn take_used(&self, count_max: usize) -> Vec<KeyUse> {
        let mut used = self.used.lock();
        let count = used.len().min(count_max);
        let later = used.split_off(count);
        let taken = mem::replace(&mut *used, later);
        drop(used);
        let last_use = |entry: Arc<Entry>| {
            let at = entry.last_used_ms.swap(0, Ordering::Relaxed);
            entry.reported_ms.store(at, Ordering::Relaxed);
            KeyUse { rowid: entry.key.rowid, at: Timestamp::from_unix_ms(at) }
        };
        taken.into_iter().map(last_use).collect()
    }

    /// Clears all keys, because any of them may have been changed or created.
    pub fn clear(&self) {
        let mut cached = self.cached.write();
        cached.unknown.clear();
        cached.version += 1;
        cached.cleared_at = cached.version;
    }

    /// Clears these keys, because they were changed.
    pub fn clear_keys<'a>(&self, digests: impl IntoIterator<Item = &'a KeyDigest>) {
        let mut cached = self.cached.write();
        cached.version += 1;
        for digest in digests {
            cached.unknown.remove(digest);
            if let Some(ByDigest(entry)) = cached.keys.get(digest) {
                entry.version.store(CLEARED, Ordering::Relaxed);
            }
        }
    }

    /// Clears the keys of these workspaces, because they or the workspaces were changed.
    pub fn clear_workspaces(&self, workspaces: &[WorkspaceId]) {
        let workspaces: FxHashSet<_> = workspaces.iter().collect();
        let mut cached = self.cached.write();
        cached.version += 1;
        cached.unknown.clear();
        drop(cached);
        // Others may read meanwhile: a workspace can be one of a hundred thousand keys.
        for ByDigest(entry) in &self.cached.read().keys {
            if workspaces.contains(&entry.key.workspace.id) {
                entry.version.store(CLEARED, Ordering::Relaxed);
            }
        }
    }

    /// Clears the unknown keys, because they may have been created.
    pub fn clear_unknown(&self) {
        if !self.cached.read().unknown.is_empty() {
            self.cached.write().unknown.clear();
        }
    }
}

impl Cached {
    /// Returns true if the key was not cleared since it was inserted.
    fn is_current(&self, entry: &Entry) -> bool {
        let version = entry.version.load(Ordering::Relaxed);
        version >= self.cleared_at && version != CLEARED
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
    use std::collections::VecDeque;

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
            workspace: Workspace::new("demo".parse().unwrap(), Quota::default()),
            expires_at: None,
        }
    }

    /// Returns a key of a workspace with this limit.
    fn limited(limit: u32) -> CachedKey {
        let quota = Quota::new(limit, 60).unwrap();
        CachedKey { workspace: Workspace::new("demo".parse().unwrap(), quota), ..key(1) }
    }

    fn insert(cache: &KeyCache, n: u8) {
        let miss = cache.bypass(&digest(n));
        cache.insert(miss, &digest(n), Some(key(n.into())), NOW).unwrap();
    }

    fn is_active(cache: &KeyCache, n: u8) -> bool {
        matches!(cache.find(&digest(n), NOW), Cache::Active(_))
    }

    fn miss(cache: &KeyCache, n: u8) -> Miss {
        match cache.find(&digest(n), NOW) {
            Cache::Miss(miss) => miss,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn expired_key_is_a_miss() {
        let cache = KeyCache::default();
        let expires = CachedKey { expires_at: Some(LATER), ..key(1) };
        cache.insert(cache.bypass(&digest(1)), &digest(1), Some(expires), NOW);
        assert!(is_active(&cache, 1));
        assert!(matches!(cache.find(&digest(1), LATER), Cache::Miss(miss) if miss.was_active));
    }

    #[test]
    fn each_use_is_taken_once_whatever_the_number_at_a_time() {
        let cache = KeyCache::default();
        for n in 0..10 {
            insert(&cache, n);
            assert!(is_active(&cache, n));
        }
        let taken = [3, 0, 6, 9].map(|count_max| cache.take_used(count_max));
        assert_eq!(taken.each_ref().map(Vec::len), [3, 0, 6, 1]);
        let rowids: Vec<_> = taken.iter().flatten().map(|used| used.rowid).collect();
        assert_eq!(rowids, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn remembers_a_bounded_number_of_unknown_keys_beside_the_active_ones() {
        let cache = KeyCache::default();
        insert(&cache, 1);
        for n in 0..2 * UNKNOWN_MAX {
            let mut bytes = [255; 32];
            bytes[..8].copy_from_slice(&n.to_be_bytes());
            let digest = KeyDigest::from_bytes(bytes);
            cache.insert(cache.bypass(&digest), &digest, None, NOW);
            assert_eq!(cache.find(&digest, NOW) == Cache::Unknown, n < UNKNOWN_MAX);
        }
        assert!(is_active(&cache, 1));
        cache.clear_unknown();
        cache.insert(miss(&cache, 2), &digest(2), None, NOW);
        assert_eq!(cache.find(&digest(2), NOW), Cache::Unknown);
        cache.clear_unknown();
        insert(&cache, 2);
        assert!(is_active(&cache, 2));
    }

    /// All sequences of seven steps of one key: changes, and reads of the store that end later.
    #[test]
    fn key_that_has_changed_since_it_was_read_is_a_miss() {
        const STEPS: u32 = 6;
        for sequence in 0..STEPS.pow(7) {
            let (cache, mut limit, mut reads) = (KeyCache::default(), None, VecDeque::new());
            let mut was_active = false;
            for n in 0..7 {
                match sequence / STEPS.pow(n) % STEPS {
                    0 => reads.push_back((cache.bypass(&digest(1)), limit)),
                    step @ (1 | 2) => {
                        let read = if step == 1 { reads.pop_front() } else { reads.pop_back() };
                        let Some((miss, read)) = read else { continue };
                        let (is_current, key) =
                            (miss.version == cache.bypass(&digest(1)).version, read.map(limited));
                        cache.insert(miss, &digest(1), key, NOW);
                        was_active = if is_current { read.is_some() } else { was_active };
                    }
                    step => {
                        limit = (step > 3).then_some(n + 1);
                        match step {
                            3 => cache.clear_keys([&digest(1)]),
                            4 => cache.clear_workspaces(&["demo".parse().unwrap()]),
                            _ => cache.clear(),
                        }
                    }
                }
                match cache.find(&digest(1), NOW) {
                    Cache::Active(workspace) => {
                        assert_eq!(Some(workspace.quota.limit()), limit, "{sequence}")
                    }
                    Cache::Unknown => assert_eq!(limit, None, "{sequence}"),
                    Cache::Miss(miss) => assert_eq!(miss.was_active, was_active, "{sequence}"),
                }
            }
        }
    }
}
