//! API keys: the lookup through the key cache, and the operations of an operator.

use enrich_lib::key::{ApiKey, KeyDigest, KeyId};
use enrich_lib::model::Timestamp;
use enrich_lib::window::{Quota, Workspace};
use enrich_store::records::{KEYS_MAX, KeyRow, KeyState};
use enrich_store::sync::Mutex;
use enrich_store::{Actor, Cache, CachedKey, Event, KeyCache, StoreError};
use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction, params};

use crate::column::{ms, parsed, time};
use crate::error::SqliteError;
use crate::{events, workspaces};

/// Returns the workspace of an active key, and records its use at `now`.
///
/// Locks `db` only if the key is not cached. Unknown keys are cached until the next tick.
pub(crate) fn find(
    cache: &KeyCache,
    digest: &KeyDigest,
    now: Timestamp,
    db: &Mutex<Connection>,
) -> Result<Option<Workspace>, SqliteError> {
    match cache.find(digest, now) {
        Cache::Active(workspace) => Ok(Some(workspace)),
        Cache::Unknown => Ok(None),
        Cache::Miss(miss) => {
            let key = read(digest, now, &db.lock())?;
            Ok(cache.insert(miss, digest, key, now))
        }
    }
}

fn read(digest: &KeyDigest, now: Timestamp, db: &Connection) -> Result<Option<CachedKey>, SqliteError> {
    let mut select = db.prepare_cached(
        "SELECT k.rowid, w.id, w.quota_limit, w.window_seconds, k.expires_at
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
        Ok(CachedKey { rowid: row.get(0)?, workspace: Workspace { id, quota }, expires_at })
    });
    Ok(key.optional()?)
}

/// The columns of [`KeyRow`] in `api_key`.
pub(crate) const COLUMNS: &str =
    "id, label, masked, created_by, created_at, last_used_at, expires_at, disabled_at,
     coalesce(revoked_at, (SELECT w.deleted_at FROM workspace w WHERE w.rowid = api_key.workspace))";

/// Reads the columns of [`COLUMNS`] from `first` on. The uses are 0.
pub(crate) fn key_row(row: &Row<'_>, first: usize) -> rusqlite::Result<KeyRow> {
    let at = |column: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<_>>(first + column)?.map(time));
    Ok(KeyRow {
        id: KeyId::from_number(row.get(first)?),
        label: row.get(first + 1)?,
        masked: row.get(first + 2)?,
        created_by: row.get(first + 3)?,
        created_at: time(row.get(first + 4)?),
        last_used_at: at(5)?,
        uses: 0,
        expires_at: at(6)?,
        disabled_at: at(7)?,
        revoked_at: at(8)?,
    })
}

/// The row of a key, and that of its workspace.
pub(crate) struct KeyRef {
    pub(crate) rowid: i64,
    pub(crate) workspace: i64,
}

/// Reads a key by its id.
pub(crate) fn row(db: &Connection, id: KeyId) -> Result<(KeyRef, KeyRow), SqliteError> {
    let select = format!("SELECT rowid, workspace, {COLUMNS} FROM api_key WHERE id = ?");
    let key = db.query_row(&select, [id.number()], |row| {
        Ok((KeyRef { rowid: row.get(0)?, workspace: row.get(1)? }, key_row(row, 2)?))
    });
    key.optional()?.ok_or_else(|| StoreError::UnknownKey(id).into())
}

/// Reads the keys of a workspace, oldest first.
pub(crate) fn rows(db: &Connection, workspace: i64) -> Result<Vec<KeyRow>, SqliteError> {
    select(db, "workspace = ? ORDER BY rowid", [workspace])
}

/// Reads a page of the keys of a workspace: those that have not ended at `now` first, then the newest first.
pub(crate) fn page(
    db: &Connection,
    workspace: i64,
    now: Timestamp,
    offset: u32,
    limit: u32,
) -> Result<Vec<KeyRow>, SqliteError> {
    let condition = "workspace = ?1
         ORDER BY revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2) DESC, rowid DESC LIMIT ?3 OFFSET ?4";
    select(db, condition, params![workspace, ms(now), limit, offset])
}

/// Reads a key of a workspace.
pub(crate) fn row_of(db: &Connection, workspace: i64, id: KeyId) -> Result<KeyRow, SqliteError> {
    let rows = select(db, "workspace = ? AND id = ?", params![workspace, id.number()])?;
    rows.into_iter().next().ok_or_else(|| StoreError::UnknownKey(id).into())
}

fn select(db: &Connection, condition: &str, values: impl Params) -> Result<Vec<KeyRow>, SqliteError> {
    let mut select = db.prepare_cached(&format!("SELECT {COLUMNS} FROM api_key WHERE {condition}"))?;
    let rows = select.query_map(values, |row| key_row(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Inserts a key. Errors: [`StoreError::TooManyKeys`].
pub(crate) fn insert(
    tx: &Transaction<'_>,
    workspace: i64,
    label: &str,
    key: &ApiKey,
    expires_at: Option<Timestamp>,
    actor: &Actor<'_>,
) -> Result<KeyId, SqliteError> {
    let select = "SELECT count(*) FROM api_key
         WHERE workspace = ? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)";
    let keys: u32 = tx.query_row(select, params![workspace, ms(actor.now)], |row| row.get(0))?;
    if keys >= KEYS_MAX {
        return Err(StoreError::TooManyKeys(workspaces::id(tx, workspace)?).into());
    }
    let digest = key.digest();
    let id = digest.key_id();
    tx.execute(
        "INSERT INTO api_key (id, workspace, label, digest, masked, created_by, created_at, expires_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            id.number(),
            workspace,
            label,
            digest.as_bytes(),
            key.masked(),
            actor.name,
            ms(actor.now),
            expires_at.map(ms)
        ],
    )?;
    Ok(id)
}

/// Disables or enables a key.
pub(crate) fn set_enabled(
    tx: &Transaction<'_>,
    id: KeyId,
    is_enabled: bool,
    actor: &Actor<'_>,
) -> Result<(), SqliteError> {
    let (key, row) = row(tx, id)?;
    match row.state(actor.now) {
        KeyState::Expired | KeyState::Revoked => return Err(StoreError::KeyEnded(id).into()),
        KeyState::Active if is_enabled => return Ok(()),
        KeyState::Disabled if !is_enabled => return Ok(()),
        KeyState::Active | KeyState::Disabled => {}
    }
    let disabled_at = (!is_enabled).then(|| ms(actor.now));
    tx.execute("UPDATE api_key SET disabled_at = ? WHERE rowid = ?", params![disabled_at, key.rowid])?;
    let event = if is_enabled { Event::KeyEnabled } else { Event::KeyDisabled };
    events::record(tx, key.workspace, event(id, &row.label), actor)
}

/// Replaces a key by `new`. The old one expires at `old_expires_at`, unless it expires earlier.
pub(crate) fn rotate(
    tx: &Transaction<'_>,
    id: KeyId,
    new: &ApiKey,
    old_expires_at: Timestamp,
    actor: &Actor<'_>,
) -> Result<KeyId, SqliteError> {
    let (key, row) = row(tx, id)?;
    if row.state(actor.now) != KeyState::Active {
        return Err(StoreError::KeyEnded(id).into());
    }
    let expires_at = row.expires_at.map_or(old_expires_at, |expires_at| expires_at.min(old_expires_at));
    tx.execute("UPDATE api_key SET expires_at = ? WHERE rowid = ?", params![ms(expires_at), key.rowid])?;
    let new = insert(tx, key.workspace, &row.label, new, row.expires_at, actor)?;
    events::record(tx, key.workspace, Event::KeyRotated { old: id, label: &row.label, new }, actor)?;
    Ok(new)
}
