//! The cache of API keys: one map look-up a request, one query the first time a key is seen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use enrich_lib::key::KeyDigest;
use enrich_lib::model::Timestamp;
use enrich_lib::window::{Quota, Workspace};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use crate::column::parsed;
use crate::error::StoreError;
use crate::sync::{Mutex, RwLock, lock};

/// The most keys that a tick says are used.
const USED_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct KeyCache {
    known: RwLock<Known>,
    used: Mutex<Vec<Arc<CachedKey>>>,
}

#[derive(Debug, Default)]
struct Known {
    keys: FxHashMap<KeyDigest, Arc<CachedKey>>,
    /// How often the cache was emptied: an answer read before that must not be filed after it.
    emptied: u64,
}

#[derive(Debug)]
pub(crate) struct CachedKey {
    pub(crate) rowid: i64,
    pub(crate) last_used_ms: AtomicU64,
    /// It is among those that were used.
    is_noted: AtomicBool,
    workspace: Workspace,
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
        let (cached, emptied) = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            (known.keys.get(digest).cloned(), known.emptied)
        };
        let key = match cached {
            Some(key) => key,
            None => match read(digest, &lock(db))? {
                Some(key) => self.file(digest, Arc::new(key), emptied),
                None => return Ok(None),
            },
        };
        self.note_use(&key, now);
        Ok(Some(key.workspace.clone()))
    }

    fn file(&self, digest: &KeyDigest, key: Arc<CachedKey>, emptied: u64) -> Arc<CachedKey> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.emptied == emptied {
            known.keys.insert(*digest, key.clone());
        }
        key
    }

    /// However often a key is used, it is noted once.
    fn note_use(&self, key: &Arc<CachedKey>, now: Timestamp) {
        if key.last_used_ms.load(Ordering::Relaxed) == now.unix_ms() {
            return;
        }
        key.last_used_ms.store(now.unix_ms(), Ordering::Relaxed);
        if !key.is_noted.swap(true, Ordering::Relaxed) {
            lock(&self.used).push(key.clone());
        }
    }

    /// The keys that were used since this was last asked: no more than can be written beside all else, the others next time.
    pub(crate) fn take_used(&self) -> Vec<Arc<CachedKey>> {
        let mut used = lock(&self.used);
        let count = used.len().min(USED_MAX);
        let taken: Vec<_> = used.drain(..count).collect();
        taken.iter().for_each(|key| key.is_noted.store(false, Ordering::Relaxed));
        taken
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
        "SELECT k.rowid, w.id, w.quota_limit, w.window_seconds FROM api_key k JOIN workspace w ON w.rowid = k.workspace
         WHERE k.digest = ? AND k.revoked_at IS NULL",
    )?;
    let key = select.query_row([digest.as_bytes()], |row| {
        let id = parsed(row, 1, |id: String| id.parse())?;
        let window_seconds = row.get(3)?;
        let quota = parsed(row, 2, |limit| Quota::new(limit, window_seconds))?;
        Ok(CachedKey {
            rowid: row.get(0)?,
            last_used_ms: AtomicU64::new(0),
            is_noted: AtomicBool::new(false),
            workspace: Workspace { id, quota },
        })
    });
    Ok(key.optional()?)
}
