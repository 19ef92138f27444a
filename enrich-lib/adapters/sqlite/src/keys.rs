//! The cache of API keys: one map look-up a request, one query the first time a key is seen.

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

/// The most keys that a tick says are used: each takes a page of its own to write.
const USED_MAX: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct KeyCache {
    known: RwLock<Known>,
    used: Mutex<Vec<Arc<CachedKey>>>,
}

#[derive(Debug, Default)]
struct Known {
    keys: FxHashSet<ByDigest>,
    /// How often the cache was emptied: an answer read before that must not be filed after it.
    emptied: u64,
}

#[derive(Debug)]
struct CachedKey {
    digest: KeyDigest,
    workspace: Workspace,
    /// Not 0 while it is among those that were used.
    last_used_ms: AtomicU64,
}

/// A key that is found by its digest: a set of pointers is small, however full it is.
#[derive(Debug)]
struct ByDigest(Arc<CachedKey>);

/// That a key was used, and when last.
pub(crate) struct Used {
    pub(crate) digest: KeyDigest,
    pub(crate) at_ms: u64,
}

impl KeyCache {
    /// The workspace of a live key, which is said to be used `now`. `db` is locked only if the key is not in the cache.
    /// Strangers' keys are not cached: they would fill it.
    pub(crate) fn find(
        &self,
        digest: &KeyDigest,
        now: Timestamp,
        db: &Mutex<Connection>,
    ) -> Result<Option<Workspace>, StoreError> {
        let emptied = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(ByDigest(key)) = known.keys.get(digest) {
                return Ok(Some(self.use_key(key, now)));
            }
            known.emptied
        };
        let Some(key) = read(digest, &lock(db))?.map(Arc::new) else { return Ok(None) };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.emptied == emptied {
            known.keys.insert(ByDigest(key.clone()));
        }
        Ok(Some(self.use_key(&key, now)))
    }

    /// However often a key is used, it is noted once.
    fn use_key(&self, key: &Arc<CachedKey>, now: Timestamp) -> Workspace {
        if key.last_used_ms.load(Ordering::Relaxed) != now.unix_ms()
            && key.last_used_ms.swap(now.unix_ms(), Ordering::Relaxed) == 0
        {
            lock(&self.used).push(key.clone());
        }
        key.workspace.clone()
    }

    /// The keys that were used since this was last asked: no more than can be written beside all else, the others next time.
    pub(crate) fn take_used(&self) -> Vec<Used> {
        let mut used = lock(&self.used);
        let count = used.len().min(USED_MAX);
        let later = used.split_off(count);
        let taken = mem::replace(&mut *used, later);
        taken
            .into_iter()
            .map(|key| Used { digest: key.digest, at_ms: key.last_used_ms.swap(0, Ordering::Relaxed) })
            .collect()
    }

    /// Forgets all keys: some may have been revoked.
    pub(crate) fn empty(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.keys.clear();
        known.emptied += 1;
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
