//! Reads API keys through the key cache.

use enrich_lib::key::KeyDigest;
use enrich_lib::model::Timestamp;
use enrich_lib::window::{Quota, Workspace};
use enrich_store::sync::Mutex;
use enrich_store::{CachedKey, KeyCache};
use rusqlite::{Connection, OptionalExtension};

use crate::column::parsed;
use crate::error::SqliteError;

/// Returns the workspace of a key that is not revoked, and records its use at `now`.
///
/// Locks `db` only if the key is not cached.
pub(crate) fn find(
    cache: &KeyCache,
    digest: &KeyDigest,
    now: Timestamp,
    db: &Mutex<Connection>,
) -> Result<Option<Workspace>, SqliteError> {
    let miss = match cache.find(digest, now) {
        Ok(workspace) => return Ok(Some(workspace)),
        Err(miss) => miss,
    };
    let key = read(digest, &db.lock())?;
    Ok(key.map(|key| cache.insert(miss, digest, key, now)))
}

fn read(digest: &KeyDigest, db: &Connection) -> Result<Option<CachedKey>, SqliteError> {
    let mut select = db.prepare_cached(
        "SELECT k.rowid, w.id, w.quota_limit, w.window_seconds FROM api_key k JOIN workspace w ON w.rowid = k.workspace
         WHERE k.digest = ? AND k.revoked_at IS NULL",
    )?;
    let key = select.query_row([digest.as_bytes()], |row| {
        let id = parsed(row, 1, |id: String| id.parse())?;
        let window_seconds = row.get(3)?;
        let quota = parsed(row, 2, |limit| Quota::new(limit, window_seconds))?;
        Ok(CachedKey { rowid: row.get(0)?, workspace: Workspace { id, quota } })
    });
    Ok(key.optional()?)
}
