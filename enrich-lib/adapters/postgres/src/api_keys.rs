//! Operator commands for API keys. Each is one transaction with its event in the audit log.
//!
//! Locks are taken in one order: the key, the revision (by a trigger), the workspace (by foreign keys).

use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::records::{KEYS_MAX, KeyRow, NewKey};
use enrich_store::usage::{Day, USES_DAYS};
use enrich_store::{Actor, Event, StoreError};
use tokio_postgres::{Row, Transaction};

use crate::audit_log;
use crate::column::{
    at, credits, day_number, key_id, key_number, live_workspace_rowid, parsed, time, workspace_rowid,
};
use crate::error::PostgresError;
use crate::pool::{Client, Value};

/// The columns of a key that [`key_row`] reads. `$1` is the workspace, and `$2` and `$3` are days.
const SELECT_KEYS: &str =
    "SELECT k.id, k.label, k.masked, k.created_by, k.created_at, k.last_used_at, coalesce(u.lookups, 0), k.expires_at,
            k.disabled_at, coalesce(k.revoked_at, (SELECT w.deleted_at FROM workspace w WHERE w.rowid = k.workspace))
     FROM api_key k LEFT JOIN (
         SELECT key, sum(lookups)::bigint AS lookups FROM usage_day
         WHERE workspace = $1 AND day BETWEEN $2 AND $3
         GROUP BY key
     ) AS u ON u.key = k.id
     WHERE k.workspace = $1";

pub(crate) async fn create(
    client: &mut Client,
    key: &NewKey<'_>,
    actor: &Actor<'_>,
) -> Result<KeyId, PostgresError> {
    let tx = client.transaction().await?;
    let workspace = live_workspace_rowid(&tx, key.workspace).await?;
    let id = insert(&tx, workspace, key.label, key.key, key.expires_at, actor).await?;
    audit_log::record(&tx, workspace, &Event::KeyCreated(id, key.label), actor).await?;
    tx.commit().await?;
    Ok(id)
}

pub(crate) async fn list(
    client: &Client,
    workspace: &WorkspaceId,
    today: Day,
) -> Result<Vec<KeyRow>, PostgresError> {
    let workspace = workspace_rowid(&**client, workspace).await?;
    let (first, last) = (day_number(today.minus(USES_DAYS - 1)), day_number(today));
    let rows = client.query(&format!("{SELECT_KEYS} ORDER BY k.rowid"), &[&workspace, &first, &last]).await?;
    rows.iter().map(key_row).collect()
}

pub(crate) async fn page(
    client: &Client,
    workspace: &WorkspaceId,
    now: Timestamp,
    offset: u32,
    limit: u32,
) -> Result<Vec<KeyRow>, PostgresError> {
    let workspace = workspace_rowid(&**client, workspace).await?;
    let today = Day::of(now);
    let (first, last) = (day_number(today.minus(USES_DAYS - 1)), day_number(today));
    let select = format!(
        "{SELECT_KEYS} ORDER BY k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $4) DESC, k.rowid DESC
         LIMIT $5 OFFSET $6"
    );
    let (limit, offset) = (i64::from(limit), i64::from(offset));
    let values: [Value<'_>; 6] = [&workspace, &first, &last, &at(now), &limit, &offset];
    client.query(&select, &values).await?.iter().map(key_row).collect()
}

pub(crate) async fn find(
    client: &Client,
    workspace: &WorkspaceId,
    id: KeyId,
    today: Day,
) -> Result<KeyRow, PostgresError> {
    let workspace = workspace_rowid(&**client, workspace).await?;
    let (first, last) = (day_number(today.minus(USES_DAYS - 1)), day_number(today));
    let select = format!("{SELECT_KEYS} AND k.id = $4");
    let row = client.query_opt(&select, &[&workspace, &first, &last, &key_number(id)]).await?;
    key_row(&row.ok_or(StoreError::UnknownKey(id))?)
}

pub(crate) async fn revoke(client: &mut Client, id: KeyId, actor: &Actor<'_>) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let key = Key::lock(&tx, id, actor.now).await?;
    if !key.is_revoked {
        let update = "UPDATE api_key SET revoked_at = $2 WHERE rowid = $1";
        tx.execute(update, &[&key.rowid, &at(actor.now)]).await?;
        audit_log::record(&tx, key.workspace, &Event::KeyRevoked(id, &key.label), actor).await?;
    }
    Ok(tx.commit().await?)
}

pub(crate) async fn set_enabled(
    client: &mut Client,
    id: KeyId,
    is_enabled: bool,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let key = Key::lock(&tx, id, actor.now).await?;
    if key.has_ended {
        return Err(StoreError::KeyEnded(id).into());
    }
    let event = match (key.is_disabled, is_enabled) {
        (false, false) => Event::KeyDisabled(id, &key.label),
        (true, true) => Event::KeyEnabled(id, &key.label),
        _ => return Ok(()),
    };
    let disabled_at = (!is_enabled).then_some(at(actor.now));
    tx.execute("UPDATE api_key SET disabled_at = $2 WHERE rowid = $1", &[&key.rowid, &disabled_at]).await?;
    audit_log::record(&tx, key.workspace, &event, actor).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn rotate(
    client: &mut Client,
    id: KeyId,
    new: &ApiKey,
    old_expires_at: Timestamp,
    actor: &Actor<'_>,
) -> Result<KeyId, PostgresError> {
    let tx = client.transaction().await?;
    let key = Key::lock(&tx, id, actor.now).await?;
    if key.has_ended || key.is_disabled {
        return Err(StoreError::KeyEnded(id).into());
    }
    let new = insert(&tx, key.workspace, &key.label, new, key.expires_at, actor).await?;
    let update = "UPDATE api_key SET expires_at = least(expires_at, $2) WHERE rowid = $1";
    tx.execute(update, &[&key.rowid, &at(old_expires_at)]).await?;
    let event = Event::KeyRotated { old: id, label: &key.label, new };
    audit_log::record(&tx, key.workspace, &event, actor).await?;
    tx.commit().await?;
    Ok(new)
}

/// Inserts a key. Errors: [`StoreError::TooManyKeys`].
async fn insert(
    tx: &Transaction<'_>,
    workspace: i64,
    label: &str,
    key: &ApiKey,
    expires_at: Option<Timestamp>,
    actor: &Actor<'_>,
) -> Result<KeyId, PostgresError> {
    let select = "SELECT w.id, (
             SELECT count(*) FROM api_key k
             WHERE k.workspace = w.rowid AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)
         ) FROM workspace w WHERE w.rowid = $1";
    let row = tx.query_one(select, &[&workspace, &at(actor.now)]).await?;
    if row.get::<_, i64>(1) >= i64::from(KEYS_MAX) {
        let workspace = parsed("workspace.id", row.get::<_, &str>(0).parse())?;
        return Err(StoreError::TooManyKeys(workspace).into());
    }
    let insert =
        "INSERT INTO api_key (id, workspace, label, digest, masked, created_by, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let (digest, expires_at) = (key.digest(), expires_at.map(at));
    let (id, bytes) = (digest.key_id(), digest.as_bytes().as_slice());
    let (number, masked, created_at) = (key_number(id), key.masked(), at(actor.now));
    tx.execute(
        insert,
        &[&number, &workspace, &label, &bytes, &masked, &actor.name, &created_at, &expires_at],
    )
    .await?;
    Ok(id)
}

/// A key whose row is locked.
struct Key {
    rowid: i64,
    workspace: i64,
    label: String,
    expires_at: Option<Timestamp>,
    is_disabled: bool,
    is_revoked: bool,
    /// True if it has expired or was revoked.
    has_ended: bool,
}

impl Key {
    async fn lock(tx: &Transaction<'_>, id: KeyId, now: Timestamp) -> Result<Self, PostgresError> {
        let select =
            "SELECT k.rowid, k.workspace, k.label, k.expires_at, k.disabled_at IS NOT NULL, k.revoked_at IS NOT NULL OR d.is_deleted,
                 k.revoked_at IS NOT NULL OR d.is_deleted OR coalesce(k.expires_at <= $2, false)
             FROM api_key k CROSS JOIN LATERAL (
                 SELECT w.deleted_at IS NOT NULL AS is_deleted FROM workspace w WHERE w.rowid = k.workspace
             ) AS d
             WHERE k.id = $1 FOR NO KEY UPDATE OF k";
        let row = tx.query_opt(select, &[&key_number(id), &at(now)]).await?;
        let row = row.ok_or(StoreError::UnknownKey(id))?;
        let [is_disabled, is_revoked, has_ended] = [4, 5, 6].map(|column| row.get(column));
        let (rowid, workspace, label) = (row.get(0), row.get(1), row.get(2));
        let expires_at = row.get::<_, Option<_>>(3).map(time);
        Ok(Self { rowid, workspace, label, expires_at, is_disabled, is_revoked, has_ended })
    }
}

fn key_row(row: &Row) -> Result<KeyRow, PostgresError> {
    let optional = |column| row.get::<_, Option<_>>(column).map(time);
    Ok(KeyRow {
        id: key_id("api_key.id", row.get(0))?,
        label: row.get(1),
        masked: row.get(2),
        created_by: row.get(3),
        created_at: time(row.get(4)),
        last_used_at: optional(5),
        uses: credits(row.get(6)),
        expires_at: optional(7),
        disabled_at: optional(8),
        revoked_at: optional(9),
    })
}
