//! API keys: the lookup through the key cache, and changes by other processes.

use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::model::Timestamp;
use enrich_lib::window::{Quota, Workspace};
use enrich_store::sync::MutexGuard;
use enrich_store::{Cache, CachedKey, KeyCache};
use rusqlite::{Connection, OptionalExtension, params};

use crate::column::{ms, parsed, time};
use crate::error::SqliteError;

/// Returns the workspace of an active key, and records its use at `now`.
///
/// Locks a connection with `lock` only if the key is not cached. Unknown keys are cached until the next refresh.
pub(crate) fn find<'a>(
    cache: &KeyCache,
    digest: &KeyDigest,
    now: Timestamp,
    lock: impl FnOnce() -> Result<MutexGuard<'a, Connection>, SqliteError>,
) -> Result<Option<Workspace>, SqliteError> {
    match cache.find(digest, now) {
        Cache::Active(workspace) => Ok(Some(workspace)),
        Cache::Unknown => Ok(None),
        Cache::Miss(miss) => {
            let key = read(digest, now, &*lock()?)?;
            Ok(cache.insert(miss, digest, key, now))
        }
    }
}

fn read(digest: &KeyDigest, now: Timestamp, db: &Connection) -> Result<Option<CachedKey>, SqliteError> {
    let mut select = db.prepare_cached(
        "SELECT k.rowid, w.id, w.quota_limit, w.window_seconds, k.expires_at, k.masked
         FROM api_key k JOIN workspace w ON w.rowid = k.workspace
         WHERE k.digest = ? AND k.revoked_at IS NULL AND k.disabled_at IS NULL
         AND w.suspended_at IS NULL AND w.deleted_at IS NULL
         AND (k.expires_at IS NULL OR k.expires_at > ?)",
    )?;
    let key = select.query_row(params![digest.as_bytes(), ms(now)], |row| {
        let id = parsed(row, 1, |id: String| id.parse())?;
        let window_seconds = row.get(3)?;
        let quota = parsed(row, 2, |limit| Quota::new(limit, window_seconds))?;
        let expires_at = row.get::<_, Option<_>>(4)?.map(time);
        let workspace = Workspace::new(id, quota).with_test(ApiKey::is_test(row.get_ref(5)?.as_str()?));
        Ok(CachedKey { rowid: row.get(0)?, workspace, expires_at })
    });
    Ok(key.optional()?)
}

/// Clears the cached keys of each workspace of which a key or a setting was changed since the audit event
/// `seen`. Other events, such as a wrong password, which anyone can cause, clear no key.
pub(crate) fn clear_changed_keys(
    db: &Connection,
    cache: &KeyCache,
    seen: &mut i64,
) -> Result<(), SqliteError> {
    let last = last_event(db)?;
    if last == *seen {
        return Ok(());
    }
    let mut select = db.prepare_cached(
        "SELECT id FROM workspace
         WHERE rowid IN (SELECT workspace FROM audit_event WHERE rowid > ? AND rowid <= ?
                         AND (action LIKE 'key.%' OR action LIKE 'workspace.%'))",
    )?;
    let changed = select.query_map([*seen, last], |row| parsed(row, 0, |id: String| id.parse()))?;
    let changed = changed.collect::<Result<Vec<_>, _>>()?;
    if !changed.is_empty() {
        cache.clear_workspaces(&changed);
    }
    *seen = last;
    Ok(())
}

/// Returns the last event of the audit log.
pub(crate) fn last_event(db: &Connection) -> Result<i64, SqliteError> {
    let select = "SELECT coalesce(max(rowid), 0) FROM audit_event";
    Ok(db.prepare_cached(select)?.query_row([], |row| row.get(0))?)
}
