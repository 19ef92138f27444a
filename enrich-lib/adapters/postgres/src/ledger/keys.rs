//! Reads API keys through the key cache, and keeps the cache consistent with the store.
//!
//! A task reads the store's revision four times a second. A cached key is used for one second after such a
//! read. A new revision clears the keys that have changed. A node that is disconnected queries the store for
//! every key, and rejects all keys if the query fails. A revoked or disabled key is therefore unusable on all
//! nodes within a second. A key expires by the node's clock, also in the cache.
//!
//! Keys that must be read wait in a queue, which is read in batches over one connection. Lookups of one key share a
//! statement, and none delays the read of the revision. Otherwise, a node whose clients repeat what failed does not
//! recover from a stall of PostgreSQL. Anyone can send unknown keys. Keys that were not active on this node therefore
//! wait in a queue of their own: a new key waits for a few batches, and known keys for none of them. A key that was not
//! found is remembered until the next read of the revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::model::Timestamp;
use enrich_lib::window::{Quota, Workspace};
use enrich_store::batch::{BatchReceiver, BatchSender, Replies, batch_queue};
use enrich_store::sync::Mutex;
use enrich_store::{Cache, CachedKey, KeyCache, StoreError};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::column::{at, bigint, parsed, time};
use crate::connect::pool::{Parameter, Pool};
use crate::error::PostgresError;

/// How long a key may remain usable after it was revoked or disabled.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// The interval between two reads of the revision. Must be well below [`CACHE_TTL`].
const INTERVAL: Duration = Duration::from_millis(250);

/// The age of the last read of the revision from which [`NodeKeys::check`] fails.
const AGE_MAX: Duration = Duration::from_secs(3);

/// Returns the active ones of some keys, or a row without a key. A standby may not have received a revocation yet.
const FIND: &str = "/* enrich: find keys */
    SELECT current_setting('transaction_read_only') = 'on', k.rowid, w.id, w.quota_limit, w.window_seconds,
        k.expires_at, k.masked, k.digest
    FROM (VALUES (1)) AS one LEFT JOIN (api_key k JOIN workspace w ON w.rowid = k.workspace)
        ON k.digest = ANY ($1) AND k.revoked_at IS NULL AND k.disabled_at IS NULL
        AND w.suspended_at IS NULL AND w.deleted_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)";

/// Returns the revision, and the start of the server, which identifies it.
const REVISION: &str = "/* enrich: revision */
    SELECT current_setting('transaction_read_only') = 'on', r.n,
        (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
    FROM revision r";

/// Returns the digests of up to `$2` keys that have changed since the revision `$1`.
const CHANGED: &str = "/* enrich: changed keys */
    SELECT k.digest FROM api_key k WHERE k.revision > $1 AND k.revision > 0
    UNION ALL
    SELECT k.digest FROM workspace w JOIN api_key k ON k.workspace = w.rowid WHERE w.revision > $1 AND w.revision > 0
    LIMIT $2";

type FoundKeys = BTreeMap<KeyDigest, Result<CachedKey, PostgresError>>;

/// An active key, or `None`.
type FindResult = Result<Option<CachedKey>, PostgresError>;

/// The keys of a node.
#[derive(Debug)]
pub(crate) struct NodeKeys {
    /// Has a connection for each queue, and one for the revision.
    pool: Pool,
    /// Keys that were active before, and those that were not.
    known: BatchSender<KeyDigest, FindResult>,
    unknown: BatchSender<KeyDigest, FindResult>,
    cache: KeyCache,
    /// The revision of the cached keys with the server that has it, and the time just before it was requested.
    revision: Mutex<Option<((i64, i64), Instant)>>,
    /// The error of the last read of the revision.
    error: Mutex<Option<String>>,
    /// The time of the last tick, in Unix milliseconds. Recorded as the time of use of keys.
    now_ms: AtomicU64,
}

impl NodeKeys {
    /// Creates a cache of the keys in the store, which are read over the connections of `pool`. Returns also the queues
    /// to [read](NodeKeys::read_queued).
    pub(crate) fn new(pool: Pool, now: Timestamp) -> (Self, [BatchReceiver<KeyDigest, FindResult>; 2]) {
        let now_ms = AtomicU64::new(now.unix_ms());
        let (cache, revision, error) = (KeyCache::default(), Mutex::default(), Mutex::default());
        let ((known, known_queued), (unknown, unknown_queued)) = (batch_queue(), batch_queue());
        (Self { pool, known, unknown, cache, revision, error, now_ms }, [known_queued, unknown_queued])
    }

    pub(crate) fn set_time(&self, now: Timestamp) {
        self.now_ms.store(now.unix_ms(), Ordering::Relaxed);
    }

    /// Returns the time of the last tick.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.now_ms.load(Ordering::Relaxed))
    }

    /// Reads the revision at a fixed interval. Never returns.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            sleep(INTERVAL).await;
            let error = self.refresh().await.err().map(|error| error.to_string());
            *self.error.lock() = error;
        }
    }

    /// Reads the keys of a queue. Runs until it is aborted.
    pub(crate) async fn read_queued(self: Arc<Self>, mut queue: BatchReceiver<KeyDigest, FindResult>) {
        let mut jobs = Vec::new();
        while queue.take(&mut jobs, self.pool.sizes.batch).await {
            jobs.retain(|job| !job.is_abandoned());
            let digests: BTreeSet<_> = jobs.iter().map(|job| job.item).collect();
            if digests.is_empty() {
                continue;
            }
            // Its callers do not wait for longer.
            let found = timeout(self.pool.timeout, self.read(&digests)).await;
            let found = found.unwrap_or(Err(PostgresError::TimedOut(self.pool.timeout)));
            let mut replies = Replies::default();
            for job in jobs.drain(..) {
                let key = match &found {
                    Ok(found) => found.get(&job.item).map(Result::as_ref).transpose(),
                    Err(error) => Err(error),
                };
                let key = key.map(|key| key.cloned());
                replies.add(job, key.map_err(|error| PostgresError::KeyNotRead(error.to_string())));
            }
        }
    }

    /// Fails if the revision could not be read, or has not been read for [`AGE_MAX`].
    pub(crate) fn check(&self) -> Result<(), PostgresError> {
        if let Some(error) = &*self.error.lock() {
            return Err(PostgresError::KeysOutdated(error.clone()));
        }
        let age = self.revision.lock().map_or(AGE_MAX, |(_, requested_at)| requested_at.elapsed());
        if age < AGE_MAX {
            return Ok(());
        }
        Err(PostgresError::KeysOutdated(format!("the last read was {} s ago", age.as_secs())))
    }

    /// Reads the revision. Clears the keys that have changed since the last one, or all keys if they cannot
    /// be determined, the revision is an earlier one, or the last one was read from another server, or longer ago
    /// than [`CACHE_TTL`]: a standby that lacks changes may have been promoted since, and have made others of the
    /// same revisions.
    pub(crate) async fn refresh(&self) -> Result<(), PostgresError> {
        let requested_at = Instant::now();
        let rows = self.pool.read(REVISION, &[]).await?;
        let (revision, server) = (rows[0].get::<_, i64>(1), rows[0].get::<_, i64>(2));
        let is_comparable =
            |((_, read_from), at): &((i64, i64), Instant)| *read_from == server && at.elapsed() < CACHE_TTL;
        let before = self.revision.lock().filter(is_comparable).map(|((before, _), _)| before);
        // Cleared before the new time applies, so that no lookup trusts a key of the old revision for longer.
        match before {
            Some(before) if before == revision => self.cache.clear_unknown(),
            // A promoted standby or a restored backup may lack the changes of cached keys.
            Some(before) if before > revision => self.cache.clear(),
            Some(before) => match changed_since(before, &self.pool).await {
                Ok(digests) if digests.len() <= self.pool.sizes.changed_keys => {
                    self.cache.clear_keys(&digests);
                    self.cache.clear_unknown();
                }
                _ => self.cache.clear(),
            },
            None => self.cache.clear(),
        }
        *self.revision.lock() = Some(((revision, server), requested_at));
        Ok(())
    }

    /// Returns the workspace of an active key.
    pub(crate) async fn find(&self, digest: &KeyDigest) -> Result<Option<Workspace>, PostgresError> {
        let now = self.now();
        let miss = match self.cached(digest, now) {
            Cache::Active(workspace) => return Ok(Some(workspace)),
            Cache::Unknown => return Ok(None),
            Cache::Miss(miss) => miss,
        };
        let queue = if miss.was_active { &self.known } else { &self.unknown };
        let key = queue.send(*digest).await.ok_or(StoreError::Stopped)??;
        Ok(self.cache.insert(miss, digest, key, now))
    }

    /// Reads those of some keys that are active now.
    async fn read(&self, digests: &BTreeSet<KeyDigest>) -> Result<FoundKeys, PostgresError> {
        let bytes: Vec<&[u8]> = digests.iter().map(|digest| &digest.as_bytes()[..]).collect();
        let values: [(Parameter<'_>, Type); 2] = [(&bytes, Type::BYTEA_ARRAY), (&at(self.now()), Type::INT8)];
        let rows = self.pool.read(FIND, &values).await?;
        let found = rows.iter().filter_map(|row| Some((row.get::<_, Option<_>>(1)?, row)));
        found.map(|(rowid, row)| Ok((digest(row.get(7))?, key(rowid, row)))).collect()
    }

    fn cached(&self, digest: &KeyDigest, now: Timestamp) -> Cache {
        if self.is_current() { self.cache.find(digest, now) } else { Cache::Miss(self.cache.bypass(digest)) }
    }

    fn is_current(&self) -> bool {
        self.revision.lock().is_some_and(|(_, requested_at)| requested_at.elapsed() < CACHE_TTL)
    }

    /// Writes the time of last use of keys used since the previous call. Failed writes are lost; the column
    /// is informational.
    pub(crate) async fn write_last_used(&self, pool: &Pool) -> Result<(), PostgresError> {
        // A key that was read twice has two entries.
        let used: BTreeMap<_, _> =
            self.cache.take_used(usize::MAX).into_iter().map(|key| (key.rowid, at(key.at))).collect();
        if used.is_empty() {
            return Ok(());
        }
        let (rowids, times): (Vec<_>, Vec<_>) = used.into_iter().unzip();
        // A fixed lock order and SKIP LOCKED prevent deadlocks between nodes.
        let update =
            "/* enrich: record use */ UPDATE api_key k SET last_used_at = greatest(k.last_used_at, i.at)
             FROM (
                 SELECT k.rowid, i.at FROM api_key k JOIN unnest($1::bigint[], $2::bigint[]) AS i (rowid, at)
                     ON i.rowid = k.rowid
                 ORDER BY k.rowid FOR UPDATE OF k SKIP LOCKED
             ) AS i
             WHERE k.rowid = i.rowid RETURNING (SELECT set_config('synchronous_commit', 'off', true))";
        pool.query(update, &[(&rowids, Type::INT8_ARRAY), (&times, Type::INT8_ARRAY)]).await?;
        Ok(())
    }
}

/// Reads the digests of the keys that have changed since a revision, up to one more than
/// [`Sizes::changed_keys`](crate::Sizes).
async fn changed_since(revision: i64, pool: &Pool) -> Result<Vec<KeyDigest>, PostgresError> {
    let count_max = bigint(pool.sizes.changed_keys as u64 + 1);
    let rows = pool.query(CHANGED, &[(&revision, Type::INT8), (&count_max, Type::INT8)]).await?;
    rows.iter().map(|row| digest(row.get(0))).collect()
}

fn digest(bytes: &[u8]) -> Result<KeyDigest, PostgresError> {
    parsed("api_key.digest", bytes.try_into().map(KeyDigest::from_bytes))
}

fn key(rowid: i64, row: &Row) -> Result<CachedKey, PostgresError> {
    let limit = u32::try_from(row.get::<_, i64>(3)).unwrap_or(u32::MAX);
    let window_seconds = u32::try_from(row.get::<_, i64>(4)).unwrap_or(0);
    let id = parsed("workspace.id", row.get::<_, &str>(2).parse())?;
    let quota = parsed("workspace.quota_limit", Quota::new(limit, window_seconds))?;
    let expires_at = row.get::<_, Option<_>>(5).map(time);
    let workspace = Workspace::new(id, quota).with_test(ApiKey::is_test(row.get(6)));
    Ok(CachedKey { rowid, workspace, expires_at })
}
