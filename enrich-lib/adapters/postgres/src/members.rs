//! Users, with their passwords and second factors.
//!
//! A transaction locks the workspace before a user or a link, and a user before its sessions.

use enrich_lib::model::WorkspaceId;
use enrich_store::users::{Role, Totp, User, UserEmail, UserId};
use enrich_store::{Actor, Event, StoreError, TokenDigest};
use tokio_postgres::{GenericClient, Row, Transaction};

use crate::column::{bigint, credits, parsed, time, workspace_rowid};
use crate::error::PostgresError;
use crate::pool::Client;
use crate::{audit_log, web_sessions};

const SELECT_USERS: &str =
    "SELECT u.rowid, w.id, u.email, u.role, u.password_hash, u.totp_secret, u.totp_last_step, u.created_at, u.last_seen_at,
            (SELECT count(*) FROM member_recovery_code c WHERE c.member = u.rowid)
     FROM member u JOIN workspace w ON w.rowid = u.workspace";

/// The order of users in a list.
const BY_EMAIL: &str = "ORDER BY w.id COLLATE \"C\", u.email COLLATE \"C\"";

pub(crate) async fn users(
    client: &Client,
    workspace: Option<&WorkspaceId>,
) -> Result<Vec<User>, PostgresError> {
    let rows = match workspace {
        Some(workspace) => {
            let workspace = workspace_rowid(&**client, workspace).await?;
            let select = format!("{SELECT_USERS} WHERE u.workspace = $1 {BY_EMAIL}");
            client.query(&select, &[&workspace]).await?
        }
        None => client.query(&format!("{SELECT_USERS} {BY_EMAIL}"), &[]).await?,
    };
    rows.iter().map(user_row).collect()
}

pub(crate) async fn user(client: &Client, id: UserId) -> Result<Option<User>, PostgresError> {
    let select = format!("{SELECT_USERS} WHERE u.rowid = $1");
    client.query_opt(&select, &[&id.0]).await?.as_ref().map(user_row).transpose()
}

pub(crate) async fn user_by_email(
    client: &Client,
    workspace: &WorkspaceId,
    email: &UserEmail,
) -> Result<Option<User>, PostgresError> {
    let select = format!("{SELECT_USERS} WHERE w.id = $1 AND u.email = $2");
    let row = client.query_opt(&select, &[&workspace.as_str(), &email.as_str()]).await?;
    row.as_ref().map(user_row).transpose()
}

pub(crate) async fn set_role(
    client: &mut Client,
    workspace: &WorkspaceId,
    user: UserId,
    role: Role,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let member = Member::lock(&tx, workspace, user, actor).await?;
    if member.role == role {
        return Ok(());
    }
    audit_log::record(&tx, member.workspace, &Event::RoleChanged(&member.email, role), actor).await?;
    member.delete_invitations(&tx, actor).await?;
    tx.execute("UPDATE member SET role = $2 WHERE rowid = $1", &[&user.0, &role.as_str()]).await?;
    check_has_admin(&tx, workspace, member.workspace).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn remove(
    client: &mut Client,
    workspace: &WorkspaceId,
    user: UserId,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let member = Member::lock(&tx, workspace, user, actor).await?;
    audit_log::record(&tx, member.workspace, &Event::MemberRemoved(&member.email), actor).await?;
    member.delete_invitations(&tx, actor).await?;
    // Sessions and recovery codes are deleted with the user.
    tx.execute("DELETE FROM member WHERE rowid = $1", &[&user.0]).await?;
    let delete = "DELETE FROM member_link WHERE workspace = $1 AND email = $2";
    tx.execute(delete, &[&member.workspace, &member.email.as_str()]).await?;
    if member.role == Role::Admin && !actor.is_operator() {
        check_has_admin(&tx, workspace, member.workspace).await?;
    }
    Ok(tx.commit().await?)
}

pub(crate) async fn set_password(
    client: &mut Client,
    user: UserId,
    password_hash: &str,
    keep: Option<&TokenDigest>,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let update = "UPDATE member SET password_hash = $2 WHERE rowid = $1 RETURNING workspace, email";
    let row = tx.query_opt(update, &[&user.0, &password_hash]).await?.ok_or(StoreError::UnknownUser)?;
    let delete = "DELETE FROM member_link WHERE workspace = $1 AND email = $2";
    tx.execute(delete, &[&row.get::<_, i64>(0), &row.get::<_, &str>(1)]).await?;
    web_sessions::end_others(&tx, user.0, keep).await?;
    audit_log::record(&tx, row.get(0), &Event::PasswordChanged(&email(&row, 1)?), actor).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn set_totp(
    client: &mut Client,
    user: UserId,
    totp: Option<&Totp>,
    recovery_codes: &[TokenDigest],
    keep: Option<&TokenDigest>,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let update =
        "UPDATE member SET totp_secret = $2, totp_last_step = $3 WHERE rowid = $1 RETURNING workspace, email";
    let (secret, step) = (totp.map(|totp| &totp.secret), totp.map_or(0, |totp| bigint(totp.last_step)));
    let row = tx.query_opt(update, &[&user.0, &secret, &step]).await?.ok_or(StoreError::UnknownUser)?;
    tx.execute("DELETE FROM member_recovery_code WHERE member = $1", &[&user.0]).await?;
    add_recovery_codes(&tx, user.0, recovery_codes.iter().map(TokenDigest::as_bytes)).await?;
    web_sessions::end_others(&tx, user.0, keep).await?;
    let email = email(&row, 1)?;
    let event = if totp.is_some() { Event::TotpEnabled(&email) } else { Event::TotpDisabled(&email) };
    audit_log::record(&tx, row.get(0), &event, actor).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn add_recovery_codes<'a>(
    tx: &Transaction<'_>,
    user: i64,
    digests: impl Iterator<Item = &'a [u8; 32]>,
) -> Result<(), PostgresError> {
    let digests: Vec<_> = digests.map(<[u8; 32]>::as_slice).collect();
    let insert = "INSERT INTO member_recovery_code (member, digest) SELECT DISTINCT $1::bigint, d FROM unnest($2::bytea[]) AS d";
    tx.execute(insert, &[&user, &digests]).await?;
    Ok(())
}

pub(crate) async fn use_totp_step(client: &Client, user: UserId, step: u64) -> Result<bool, PostgresError> {
    // A concurrent use of the same step waits for the row, and then finds a step that is not earlier.
    let update = "UPDATE member SET totp_last_step = $2
         WHERE rowid = $1 AND totp_secret IS NOT NULL AND totp_last_step < $2";
    Ok(client.execute(update, &[&user.0, &bigint(step)]).await? == 1)
}

pub(crate) async fn use_recovery_code(
    client: &mut Client,
    user: UserId,
    code: &TokenDigest,
    actor: &Actor<'_>,
) -> Result<bool, PostgresError> {
    let tx = client.transaction().await?;
    let delete = "DELETE FROM member_recovery_code WHERE member = $1 AND digest = $2";
    if tx.execute(delete, &[&user.0, &code.as_bytes().as_slice()]).await? == 0 {
        return Ok(false);
    }
    let (workspace, email) = workspace_and_email(&tx, user).await?;
    audit_log::record(&tx, workspace, &Event::RecoveryCodeUsed(&email), actor).await?;
    tx.commit().await?;
    Ok(true)
}

pub(crate) async fn record_failed_attempt(
    client: &Client,
    user: UserId,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let (workspace, email) = workspace_and_email(&**client, user).await?;
    audit_log::record(&**client, workspace, &Event::AttemptFailed(&email), actor).await
}

async fn workspace_and_email(
    client: &impl GenericClient,
    user: UserId,
) -> Result<(i64, UserEmail), PostgresError> {
    let select = "SELECT workspace, email FROM member WHERE rowid = $1";
    let row = client.query_opt(select, &[&user.0]).await?.ok_or(StoreError::UnknownUser)?;
    Ok((row.get(0), email(&row, 1)?))
}

/// Locks a workspace and returns its row id, so that changes of its users and links run one after the other.
///
/// Errors: [`StoreError::WorkspaceDeleted`] if the workspace was deleted and `is_live` is required.
pub(crate) async fn lock_workspace(
    tx: &Transaction<'_>,
    workspace: &WorkspaceId,
    is_live: bool,
) -> Result<i64, PostgresError> {
    // Conflicts with the locks of credits and of other changes of users, and not with the checks of foreign keys.
    let select = "SELECT rowid, deleted_at IS NOT NULL FROM workspace WHERE id = $1 FOR NO KEY UPDATE";
    let row = tx.query_opt(select, &[&workspace.as_str()]).await?;
    let row = row.ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()))?;
    match row.get(1) {
        true if is_live => Err(StoreError::WorkspaceDeleted(workspace.clone()).into()),
        _ => Ok(row.get(0)),
    }
}

/// A user to change, whose workspace is locked.
struct Member {
    workspace: i64,
    email: UserEmail,
    role: Role,
}

impl Member {
    /// Only the operator changes users of a deleted workspace.
    ///
    /// Errors: [`StoreError::UnknownUser`].
    async fn lock(
        tx: &Transaction<'_>,
        workspace: &WorkspaceId,
        user: UserId,
        actor: &Actor<'_>,
    ) -> Result<Self, PostgresError> {
        let workspace = lock_workspace(tx, workspace, !actor.is_operator()).await?;
        let select = "SELECT email, role FROM member WHERE workspace = $1 AND rowid = $2";
        let row = tx.query_opt(select, &[&workspace, &user.0]).await?.ok_or(StoreError::UnknownUser)?;
        Ok(Self { workspace, email: email(&row, 0)?, role: role(row.get(1))? })
    }

    /// Deletes the open invitations that the user created, so that they end with the user's right to invite.
    async fn delete_invitations(&self, tx: &Transaction<'_>, actor: &Actor<'_>) -> Result<(), PostgresError> {
        let delete = "DELETE FROM member_link WHERE workspace = $1 AND created_by = $2 AND role IS NOT NULL
             RETURNING email";
        for row in tx.query(delete, &[&self.workspace, &self.email.as_str()]).await? {
            let event = &Event::InvitationRevoked(&email(&row, 0)?);
            audit_log::record(tx, self.workspace, event, actor).await?;
        }
        Ok(())
    }
}

/// Checks that a locked workspace has an admin. Errors: [`StoreError::LastAdmin`].
async fn check_has_admin(
    tx: &Transaction<'_>,
    workspace: &WorkspaceId,
    rowid: i64,
) -> Result<(), PostgresError> {
    let select = "SELECT FROM member WHERE workspace = $1 AND role = 'admin' LIMIT 1";
    let has_admin = tx.query_opt(select, &[&rowid]).await?.is_some();
    if has_admin { Ok(()) } else { Err(StoreError::LastAdmin(workspace.clone()).into()) }
}

fn user_row(row: &Row) -> Result<User, PostgresError> {
    let secret: Option<Vec<u8>> = row.get(5);
    Ok(User {
        id: UserId(row.get(0)),
        workspace: parsed("workspace.id", row.get::<_, &str>(1).parse())?,
        email: email(row, 2)?,
        role: role(row.get(3))?,
        password_hash: row.get(4),
        totp: secret.map(|secret| Totp { secret, last_step: credits(row.get(6)) }),
        created_at: time(row.get(7)),
        last_seen_at: row.get::<_, Option<_>>(8).map(time),
        recovery_codes: u32::try_from(row.get::<_, i64>(9)).unwrap_or(u32::MAX),
    })
}

fn email(row: &Row, column: usize) -> Result<UserEmail, PostgresError> {
    parsed("member.email", row.get::<_, &str>(column).parse())
}

fn role(name: &str) -> Result<Role, PostgresError> {
    parsed("member.role", name.parse())
}
