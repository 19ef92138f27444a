//! Reads API keys through the key cache, and keeps the cache consistent with the store.
//!
//! Cached keys are used for one second after a heartbeat. A heartbeat with a new revision clears the cache. A node that is
//! disconnected queries the store for every key, and rejects all keys if the query fails. A revoked or disabled key is therefore
//! unusable on all nodes within a second. A key expires by the node's clock, also in the cache.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_lib::key::KeyDigest;
use enrich_lib::model::Timestamp;
use enrich_lib::window::{Quota, Workspace};
use enrich_store::sync::Mutex;
use enrich_store::{CachedKey, KeyCache};
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::column::{at, parsed, time};
use crate::error::PostgresError;
use crate::pool::Pool;

/// How long a key may remain usable after it was revoked or disabled.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// The keys of a node.
#[derive(Debug, Default)]
pub(crate) struct NodeKeys {
    cache: KeyCache,
    /// The revision of the cached keys, and the time just before it was requested.
    revision: Mutex<Option<(i64, Instant)>>,
    /// The time of the last tick, in Unix milliseconds. Recorded as the time of use of keys.
    now_ms: AtomicU64,
}

impl NodeKeys {
    pub(crate) fn set_time(&self, now: Timestamp) {
        self.now_ms.store(now.unix_ms(), Ordering::Relaxed);
    }

    /// Returns the time of the last tick.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.now_ms.load(Ordering::Relaxed))
    }

    /// Records the store's `revision`, requested at `requested_at`. A new revision clears the cache, because a key may have
    /// been revoked or disabled.
    pub(crate) fn set_revision(&self, revision: i64, requested_at: Instant) {
        let mut current = self.revision.lock();
        // Cleared before the new time applies, so that no lookup trusts a key of the old revision for longer.
        if current.is_none_or(|(before, _)| before != revision) {
            self.cache.clear();
        }
        *current = Some((revision, requested_at));
    }

    /// Returns the workspace of an active key.
    pub(crate) async fn find(
        &self,
        digest: &KeyDigest,
        pool: &Pool,
    ) -> Result<Option<Workspace>, PostgresError> {
        let now = self.now();
        let miss = if self.is_current() {
            match self.cache.find(digest, now) {
                Ok(workspace) => return Ok(Some(workspace)),
                Err(miss) => miss,
            }
        } else {
            self.cache.bypass()
        };
        let key = read(digest, now, pool).await?;
        Ok(key.map(|key| self.cache.insert(miss, digest, key, now)))
    }

    fn is_current(&self) -> bool {
        self.revision.lock().is_some_and(|(_, requested_at)| requested_at.elapsed() < CACHE_TTL)
    }

    /// Writes the time of last use of keys used since the previous call. Failed writes are lost; the column is
    /// informational.
    pub(crate) async fn write_last_used(&self, pool: &Pool) -> Result<(), PostgresError> {
        // A key that was read twice has two entries.
        let used: BTreeMap<_, _> =
            self.cache.take_used(usize::MAX).into_iter().map(|key| (key.rowid, at(key.at))).collect();
        if used.is_empty() {
            return Ok(());
        }
        let (rowids, times): (Vec<_>, Vec<_>) = used.into_iter().unzip();
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

/// Reads a key that is active at `now`.
async fn read(digest: &KeyDigest, now: Timestamp, pool: &Pool) -> Result<Option<CachedKey>, PostgresError> {
    let select = "SELECT k.rowid, w.id, w.quota_limit, w.window_seconds, k.expires_at
         FROM api_key k JOIN workspace w ON w.rowid = k.workspace
         WHERE k.digest = $1 AND k.revoked_at IS NULL AND k.disabled_at IS NULL
             AND (k.expires_at IS NULL OR k.expires_at > $2)";
    let rows = pool.query(select, &[&digest.as_bytes().as_slice(), &at(now)]).await?;
    rows.first().map(key).transpose()
}

fn key(row: &Row) -> Result<CachedKey, PostgresError> {
    let limit = u32::try_from(row.get::<_, i64>(2)).unwrap_or(u32::MAX);
    let window_seconds = u32::try_from(row.get::<_, i32>(3)).unwrap_or(0);
    let id = parsed("workspace.id", row.get::<_, &str>(1).parse())?;
    let quota = parsed("workspace.quota_limit", Quota::new(limit, window_seconds))?;
    let expires_at = row.get::<_, Option<_>>(4).map(time);
    Ok(CachedKey { rowid: row.get(0), workspace: Workspace { id, quota }, expires_at })
}
