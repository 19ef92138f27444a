//! API keys.

use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{Timestamp, WorkspaceId};

use super::lock::{id as workspace_id, lock_live, rowid};
use super::transaction::{Accounts, Tx, transact};
use super::{log, usage};
use crate::action::Action;
use crate::actor::{Actor, Authority};
use crate::error::StoreError;
use crate::records::{KEYS_MAX, KeyRow, KeyState, NewKey};
use crate::token::TokenDigest;
use crate::usage::Day;
use crate::value::{Row, Value, values};

/// The columns of [`KeyRow`], without the uses.
pub(super) const COLUMNS: &str =
    "k.id, k.label, k.masked, k.created_by, k.created_at, k.last_used_at, k.expires_at,
     k.initial_expires_at, k.disabled_at, k.disabled_by, coalesce(k.revoked_at, w.deleted_at)";

/// The keys with their workspaces.
pub(super) const TABLES: &str = "api_key k JOIN workspace w ON w.rowid = k.workspace";

/// Reads the columns of [`COLUMNS`].
pub(super) fn key_row(row: &mut Row) -> Result<KeyRow, StoreError> {
    Ok(KeyRow {
        id: row.read()?,
        label: row.read()?,
        masked: row.read()?,
        created_by: row.read()?,
        created_at: row.read()?,
        last_used_at: row.read()?,
        uses: 0,
        expires_at: row.read()?,
        initial_expires_at: row.read()?,
        disabled_at: row.read()?,
        disabled_by: row.read()?,
        revoked_at: row.read()?,
    })
}

impl Accounts {
    /// Stores a new key and returns its id. The event is `key.created`.
    ///
    /// Errors: [`StoreError::TooManyKeys`]; [`StoreError::FormUsed`].
    pub async fn create_key(&mut self, key: &NewKey<'_>, actor: &Actor<'_>) -> Result<KeyId, StoreError> {
        transact!(self, tx, {
            let workspace = lock_live(tx, key.workspace).await?;
            check_form(tx, workspace, key.form).await?;
            let id = insert(tx, workspace, key, actor.name, actor.now).await?;
            let suffix = if ApiKey::is_test(key.key.reveal()) { ", a test key" } else { "" };
            let subject = format!("{id} ({}){suffix}", key.label);
            log::record(tx, workspace, Action::KeyCreated, &subject, actor).await?;
            Ok(id)
        })
    }

    /// Returns the keys of `workspace`, oldest first, with their uses in the days up to `today`.
    pub async fn keys(&mut self, workspace: &WorkspaceId, today: Day) -> Result<Vec<KeyRow>, StoreError> {
        self.keys_with(workspace, today, "ORDER BY k.rowid", &[]).await
    }

    /// Returns up to `limit` keys of `workspace` after the first `offset`: those that work or are disabled at
    /// `now`, and then those that have ended, newest first.
    pub async fn key_page(
        &mut self,
        workspace: &WorkspaceId,
        now: Timestamp,
        offset: u32,
        limit: u32,
    ) -> Result<Vec<KeyRow>, StoreError> {
        let order =
            "ORDER BY k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2) DESC, k.rowid DESC
             LIMIT $3 OFFSET $4";
        self.keys_with(workspace, Day::from_timestamp(now), order, values![now, limit, offset]).await
    }

    /// Returns a key of `workspace` with its uses up to `today`.
    ///
    /// Errors: [`StoreError::UnknownKey`].
    pub async fn key(
        &mut self,
        workspace: &WorkspaceId,
        id: KeyId,
        today: Day,
    ) -> Result<KeyRow, StoreError> {
        let keys = self.keys_with(workspace, today, "AND k.id = $2", values![id]).await?;
        keys.into_iter().next().ok_or(StoreError::UnknownKey(id))
    }

    /// Reads keys of a workspace. `condition` begins with `$2`.
    async fn keys_with(
        &mut self,
        workspace: &WorkspaceId,
        today: Day,
        condition: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<KeyRow>, StoreError> {
        let mut tx = self.read().await?;
        let workspace = rowid(&mut *tx, workspace).await?;
        let select = format!("SELECT {COLUMNS} FROM {TABLES} WHERE k.workspace = $1 {condition}");
        let values: Vec<_> = [Value::Int(workspace)].into_iter().chain(values.iter().cloned()).collect();
        let mut keys = tx.rows(&select, &values, key_row).await?;
        let uses = usage::uses(&mut *tx, workspace, today).await?;
        keys.iter_mut().for_each(|key| key.uses = uses.get(&key.id).copied().unwrap_or_default());
        Ok(keys)
    }

    /// Revokes a key permanently. The event is `key.revoked`. A key that is already revoked keeps its first
    /// revocation date, without another event.
    ///
    /// Errors: [`StoreError::UnknownKey`].
    pub async fn revoke_key(&mut self, id: KeyId, actor: &Actor<'_>) -> Result<(), StoreError> {
        transact!(self, tx, {
            let (workspace, key) = lock(tx, id, actor).await?;
            if key.revoked_at.is_some() {
                return Ok(());
            }
            tx.execute("UPDATE api_key SET revoked_at = $1 WHERE id = $2", values![actor.now, id]).await?;
            log::record(tx, workspace, Action::KeyRevoked, &format!("{id} ({})", key.label), actor).await
        })
    }

    /// Disables a key, or enables it again. The event is `key.disabled` or `key.enabled`. There is none if
    /// the key is in that state already. Only its author and an admin can undo that a key was disabled. If the creator
    /// of a key has disabled it, another user who disables it becomes the author.
    ///
    /// Errors: [`StoreError::UnknownKey`]; [`StoreError::KeyEnded`] if the key has expired or was revoked.
    pub async fn set_key_enabled(
        &mut self,
        id: KeyId,
        is_enabled: bool,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        transact!(self, tx, {
            let (workspace, key) = lock(tx, id, actor).await?;
            match key.state(actor.now) {
                KeyState::Expired | KeyState::Revoked => return Err(StoreError::KeyEnded(id)),
                KeyState::Active if is_enabled => return Ok(()),
                KeyState::Disabled if !is_enabled && !key.can_be_disabled_by(actor.name) => return Ok(()),
                KeyState::Active | KeyState::Disabled => {}
            }
            if is_enabled && !key.can_be_enabled_by(actor.name) {
                let authority = actor.authority.map(|session| Authority { is_admin: true, ..session });
                log::authorize(tx, workspace, &Actor { authority, ..*actor }).await?;
            }
            let (disabled_at, disabled_by) = (!is_enabled).then_some((actor.now, actor.name)).unzip();
            let update = "UPDATE api_key SET disabled_at = $1, disabled_by = $2 WHERE id = $3";
            tx.execute(update, values![disabled_at, disabled_by, id]).await?;
            let action = if is_enabled { Action::KeyEnabled } else { Action::KeyDisabled };
            log::record(tx, workspace, action, &format!("{id} ({})", key.label), actor).await
        })
    }

    /// Replaces a key by `new`, which gets the same workspace, label and creator and the expiry that the old key was
    /// created with, and returns it. A test key is replaced by the test key of `new`, so show only the returned key.
    /// `form` is that of [`NewKey`]. The old key expires at `old_expires_at`, unless it expires earlier. The event is
    /// `key.rotated`.
    ///
    /// Errors: [`StoreError::UnknownKey`]; [`StoreError::KeyEnded`] if the key is disabled, has expired or
    /// was revoked; [`StoreError::TooManyKeys`]; [`StoreError::FormUsed`].
    pub async fn rotate_key(
        &mut self,
        id: KeyId,
        new: &ApiKey,
        form: Option<&TokenDigest>,
        old_expires_at: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<ApiKey, StoreError> {
        transact!(self, tx, {
            let (workspace, key) = lock(tx, id, actor).await?;
            check_form(tx, workspace, form).await?;
            if key.state(actor.now) != KeyState::Active {
                return Err(StoreError::KeyEnded(id));
            }
            let expires_at = key.expiry_after_rotation(old_expires_at);
            tx.execute("UPDATE api_key SET expires_at = $1 WHERE id = $2", values![expires_at, id]).await?;
            let name = workspace_id(tx, workspace).await?;
            let api_key = if key.is_test() { new.clone().into_test() } else { new.clone() };
            let expires_at = key.initial_expires_at;
            let new = NewKey { form, expires_at, ..NewKey::new(&name, &key.label, &api_key) };
            let new = insert(tx, workspace, &new, &key.created_by, actor.now).await?;
            let subject = format!("{id} ({}) to {new}", key.label);
            log::record(tx, workspace, Action::KeyRotated, &subject, actor).await?;
            Ok(api_key)
        })
    }
}

/// Locks the workspace of a key for a change by `actor`, and returns its row and the key.
///
/// Errors: [`StoreError::UnknownKey`]; [`StoreError::NotAllowed`].
async fn lock(tx: &mut Tx<'_>, id: KeyId, actor: &Actor<'_>) -> Result<(i64, KeyRow), StoreError> {
    let update = "UPDATE workspace SET revised = revised + 1
         WHERE rowid = (SELECT workspace FROM api_key WHERE id = $1) RETURNING rowid";
    let workspace = tx.row(update, values![id]).await?.ok_or(StoreError::UnknownKey(id))?.read()?;
    log::authorize(tx, workspace, actor).await?;
    let select = format!("SELECT {COLUMNS} FROM {TABLES} WHERE k.id = $1");
    let row = tx.row(&select, values![id]).await?;
    Ok((workspace, key_row(&mut row.unwrap_or_default())?))
}

/// Checks that no key of a locked workspace was created with this form. Errors: [`StoreError::FormUsed`].
async fn check_form(tx: &mut Tx<'_>, workspace: i64, form: Option<&TokenDigest>) -> Result<(), StoreError> {
    let select = "SELECT rowid FROM api_key WHERE workspace = $1 AND form = $2";
    if tx.exists(select, values![workspace, form]).await? { Err(StoreError::FormUsed) } else { Ok(()) }
}

/// Inserts a key into its workspace, which is locked. Errors: [`StoreError::TooManyKeys`].
async fn insert(
    tx: &mut Tx<'_>,
    workspace: i64,
    new: &NewKey<'_>,
    created_by: &str,
    now: Timestamp,
) -> Result<KeyId, StoreError> {
    let select = "SELECT count(*) FROM api_key
         WHERE workspace = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)";
    let keys: u32 = tx.value(select, values![workspace, now]).await?;
    if keys >= KEYS_MAX {
        return Err(StoreError::TooManyKeys(new.workspace.clone()));
    }
    let insert =
        "INSERT INTO api_key (id, workspace, label, digest, masked, form, created_by, created_at, expires_at,
             initial_expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)";
    let (digest, masked) = (new.key.digest(), new.key.masked());
    let id = digest.key_id();
    let row = values![id, workspace, new.label, &digest, &masked, new.form, created_by, now, new.expires_at];
    tx.execute(insert, row).await?;
    Ok(id)
}
