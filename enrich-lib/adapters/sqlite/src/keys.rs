//! The cache of API keys. A request takes one map lookup; the first request with a key takes one SQL query.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use enrich_lib::key::KeyDigest;
use enrich_lib::model::Timestamp;
use enrich_lib::window::{Quota, Workspace};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashSet;

use crate::column::parsed;
use crate::error::StoreError;
use crate::sync::{Mutex, RwLock, lock};

/// Maximum number of keys whose last use is written per tick. Each key updates a separate page.
const USED_MAX: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct KeyCache {
    cached: RwLock<Cached>,
    used: Mutex<Vec<Arc<CachedKey>>>,
}

#[derive(Debug, Default)]
struct Cached {
    keys: FxHashSet<ByDigest>,
    /// Number of times the cache was cleared. A result read before the cache was cleared must not be inserted afterwards.
    generation: u64,
}

#[derive(Debug)]
struct CachedKey {
    digest: KeyDigest,
    workspace: Workspace,
    /// Time of the last use, in Unix milliseconds. Not 0 while the key is in the list of used keys.
    last_used_ms: AtomicU64,
}

/// A key, hashed and compared by its digest. A set of pointers stays small even when it is full.
#[derive(Debug)]
struct ByDigest(Arc<CachedKey>);

/// The last use of a key.
pub(crate) struct KeyUse {
    pub(crate) digest: KeyDigest,
    pub(crate) at_ms: u64,
}

impl KeyCache {
    /// Returns the workspace of a key that is not revoked, and records its use at `now`.
    ///
    /// Locks `db` only if the key is not cached. Unknown keys are not cached, because they would fill the cache.
    pub(crate) fn find(
        &self,
        digest: &KeyDigest,
        now: Timestamp,
        db: &Mutex<Connection>,
    ) -> Result<Option<Workspace>, StoreError> {
        let generation = {
            let cached = self.cached.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(ByDigest(key)) = cached.keys.get(digest) {
                return Ok(Some(self.record_use(key, now)));
            }
            cached.generation
        };
        let Some(key) = read(digest, &lock(db))?.map(Arc::new) else { return Ok(None) };
        let mut cached = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        if cached.generation == generation {
            cached.keys.insert(ByDigest(key.clone()));
        }
        Ok(Some(self.record_use(&key, now)))
    }

    /// Records a use. The key is added to the list of used keys only once per tick.
    fn record_use(&self, key: &Arc<CachedKey>, now: Timestamp) -> Workspace {
        if key.last_used_ms.load(Ordering::Relaxed) != now.unix_ms()
            && key.last_used_ms.swap(now.unix_ms(), Ordering::Relaxed) == 0
        {
            lock(&self.used).push(key.clone());
        }
        key.workspace.clone()
    }

    /// Returns the keys used since the last call, up to [`USED_MAX`]. The remaining keys follow in the next call.
    pub(crate) fn take_used(&self) -> Vec<KeyUse> {
        let mut used = lock(&self.used);
        let count = used.len().min(USED_MAX);
        let later = used.split_off(count);
        let taken = mem::replace(&mut *used, later);
        taken
            .into_iter()
            .map(|key| KeyUse { digest: key.digest, at_ms: key.last_used_ms.swap(0, Ordering::Relaxed) })
            .collect()
    }

    /// Empties the cache, because keys may have been revoked.
    pub(crate) fn clear(&self) {
        let mut cached = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        cached.keys.clear();
        cached.generation += 1;
    }
}

fn read(digest: &KeyDigest, db: &Connection) -> Result<Option<CachedKey>, StoreError> {
    let mut select = db.prepare_cached(
        "SELECT w.id, w.quota_limit, w.window_seconds FROM api_key k JOIN workspace w ON w.rowid = k.workspace
         WHERE k.digest = ? AND k.revoked_at IS NULL",
    )?;
    let key = select.query_row([digest.as_bytes()], |row| {
        let id = parsed(row, 0, |id: String| id.parse())?;
        let window_seconds = row.get(2)?;
        let quota = parsed(row, 1, |limit| Quota::new(limit, window_seconds))?;
        Ok(CachedKey { digest: *digest, workspace: Workspace { id, quota }, last_used_ms: AtomicU64::new(0) })
    });
    Ok(key.optional()?)
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
