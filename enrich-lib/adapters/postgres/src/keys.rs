//! The cache of API keys: one map lookup per request, and one query the first time a key is used.
//!
//! Cached keys are trusted for one second after a heartbeat. A heartbeat with a new revision clears the cache. A node that
//! is cut off queries the store for every key, and rejects all keys if the query fails. A revoked key is therefore unusable
//! everywhere within a second.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use enrich_lib::key::KeyDigest;
use enrich_lib::model::Timestamp;
use enrich_lib::window::{Quota, Workspace};
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::column::at;
use crate::error::StoreError;
use crate::pool::Pool;
use crate::sync::{Mutex, RwLock, lock};

/// How long a key may remain usable after it was revoked.
const CACHE_TTL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct KeyCache {
    cached: RwLock<Cached>,
    /// The time of the last tick, in Unix milliseconds. Recorded as the time of use of keys.
    now_ms: AtomicU64,
    used: Mutex<BTreeMap<i64, Timestamp>>,
}

#[derive(Debug, Default)]
struct Cached {
    keys: BTreeMap<KeyDigest, Arc<CachedKey>>,
    /// The number of times the cache was cleared. A result read before a clear must not be inserted after it.
    generation: u64,
    /// The revision of the cached keys, and the time just before it was requested.
    revision_seen: Option<(i64, Instant)>,
}

#[derive(Debug)]
struct CachedKey {
    rowid: i64,
    last_used_ms: AtomicU64,
    workspace: Workspace,
}

impl KeyCache {
    pub(crate) fn set_time(&self, now: Timestamp) {
        self.now_ms.store(now.unix_ms(), Ordering::Relaxed);
    }

    /// Records the store's `revision`, requested at `requested_at`. A new revision clears the cache, because a key may have been
    /// revoked.
    pub(crate) fn revision_seen(&self, revision: i64, requested_at: Instant) {
        let mut cached = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        if cached.revision_seen.is_none_or(|(before, _)| before != revision) {
            cached.keys.clear();
            cached.generation += 1;
        }
        cached.revision_seen = Some((revision, requested_at));
    }

    /// Returns the workspace of an active key. Unknown keys are not cached, because clients could fill the cache with them.
    pub(crate) async fn find(
        &self,
        digest: &KeyDigest,
        pool: &Pool,
    ) -> Result<Option<Workspace>, StoreError> {
        let (cached, generation) = {
            let cached = self.cached.read().unwrap_or_else(PoisonError::into_inner);
            let is_trusted =
                cached.revision_seen.is_some_and(|(_, requested_at)| requested_at.elapsed() < CACHE_TTL);
            (cached.keys.get(digest).filter(|_| is_trusted).cloned(), cached.generation)
        };
        let key = match cached {
            Some(key) => key,
            None => match read(digest, pool).await? {
                Some(key) => self.insert(digest, Arc::new(key), generation),
                None => return Ok(None),
            },
        };
        self.record_use(&key);
        Ok(Some(key.workspace.clone()))
    }

    fn insert(&self, digest: &KeyDigest, key: Arc<CachedKey>, generation: u64) -> Arc<CachedKey> {
        let mut cached = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        if cached.generation == generation {
            cached.keys.insert(*digest, key.clone());
        }
        key
    }

    /// Records that a key was used, at most once per key and tick.
    fn record_use(&self, key: &CachedKey) {
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        if key.last_used_ms.swap(now_ms, Ordering::Relaxed) != now_ms {
            lock(&self.used).insert(key.rowid, Timestamp::from_unix_ms(now_ms));
        }
    }

    /// Writes the time of last use of keys used since the previous call. Failed writes are lost; the column is
    /// informational.
    pub(crate) async fn write_last_used(&self, pool: &Pool) -> Result<(), StoreError> {
        let used = std::mem::take(&mut *lock(&self.used));
        if used.is_empty() {
            return Ok(());
        }
        let (rowids, times): (Vec<_>, Vec<_>) =
            used.into_iter().map(|(rowid, time)| (rowid, at(time))).unzip();
        // A fixed lock order and SKIP LOCKED prevent deadlocks between nodes.
        let update = "UPDATE api_key k SET last_used_at = greatest(k.last_used_at, i.at)
             FROM (
                 SELECT k.rowid, i.at FROM api_key k JOIN unnest($1::bigint[], $2::timestamptz[]) AS i (rowid, at)
                     ON i.rowid = k.rowid
                 ORDER BY k.rowid FOR UPDATE OF k SKIP LOCKED
             ) AS i
             WHERE k.rowid = i.rowid";
        pool.query(update, &[&rowids, &times]).await?;
        Ok(())
    }
}

async fn read(digest: &KeyDigest, pool: &Pool) -> Result<Option<CachedKey>, StoreError> {
    let select = "SELECT k.rowid, w.id, w.quota_limit, w.window_seconds
         FROM api_key k JOIN workspace w ON w.rowid = k.workspace
         WHERE k.digest = $1 AND k.revoked_at IS NULL";
    let rows = pool.query(select, &[&digest.as_bytes().as_slice()]).await?;
    rows.first().map(key).transpose()
}

fn key(row: &Row) -> Result<CachedKey, StoreError> {
    let unreadable = || StoreError::Broken("the workspace of a key can't be read".to_owned());
    let limit = u32::try_from(row.get::<_, i64>(2)).unwrap_or(u32::MAX);
    let window_seconds = u32::try_from(row.get::<_, i32>(3)).unwrap_or(0);
    Ok(CachedKey {
        rowid: row.get(0),
        last_used_ms: AtomicU64::new(0),
        workspace: Workspace {
            id: row.get::<_, &str>(1).parse().map_err(|_| unreadable())?,
            quota: Quota::new(limit, window_seconds).map_err(|_| unreadable())?,
        },
    })
}
