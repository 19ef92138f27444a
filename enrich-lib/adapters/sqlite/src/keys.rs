//! The cache of API keys: one map look-up a request, one query the first time a key is seen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use enrich_lib::key::KeyDigest;
use enrich_lib::model::Timestamp;
use enrich_lib::window::{Quota, Workspace};
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use crate::column::parsed;
use crate::error::StoreError;
use crate::sync::{Mutex, RwLock, lock};

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
    workspace: Workspace,
}

impl KeyCache {
    /// The workspace of a live key, which is used `now`: at the last tick. `db` is locked only if the key is not in the cache. Strangers' keys are not
    /// cached: they would fill it.
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

    /// Once a tick and key, however often it is used.
    fn note_use(&self, key: &Arc<CachedKey>, now: Timestamp) {
        let now_ms = now.unix_ms();
        if key.last_used_ms.load(Ordering::Relaxed) != now_ms
            && key.last_used_ms.swap(now_ms, Ordering::Relaxed) != now_ms
        {
            lock(&self.used).push(key.clone());
        }
    }

    /// The keys that were used since this was last asked.
    pub(crate) fn take_used(&self) -> Vec<Arc<CachedKey>> {
        std::mem::take(&mut *lock(&self.used))
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
            workspace: Workspace { id, quota },
        })
    });
    Ok(key.optional()?)
}
