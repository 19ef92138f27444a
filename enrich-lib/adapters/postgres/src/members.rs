//! Users and their memberships.

use enrich_lib::model::WorkspaceId;
use enrich_store::users::{MemberRow, Role, Totp, User, UserEmail, UserId};
use enrich_store::{Actor, Event, StoreError, TokenDigest};
use tokio_postgres::{Row, Transaction};

use crate::column::{bigint, credits, parsed, time, workspace_rowid};
use crate::error::PostgresError;
use crate::pool::Client;
use crate::{audit_log, web_sessions};

const SELECT_USERS: &str =
    "SELECT u.rowid, u.email, u.password_hash, u.totp_secret, u.totp_last_step, u.created_at,
            (SELECT count(*) FROM recovery_code c WHERE c.user_id = u.rowid), m.workspaces, m.roles
     FROM console_user u CROSS JOIN LATERAL (
         SELECT coalesce(array_agg(w.id ORDER BY w.id COLLATE \"C\"), '{}') AS workspaces,
                coalesce(array_agg(m.role ORDER BY w.id COLLATE \"C\"), '{}') AS roles
         FROM membership m JOIN workspace w ON w.rowid = m.workspace WHERE m.user_id = u.rowid
     ) AS m";

pub(crate) async fn users(client: &Client) -> Result<Vec<User>, PostgresError> {
    let select = format!("{SELECT_USERS} ORDER BY u.email COLLATE \"C\"");
    client.query(&select, &[]).await?.iter().map(user_row).collect()
}

pub(crate) async fn user(client: &Client, id: UserId) -> Result<Option<User>, PostgresError> {
    let select = format!("{SELECT_USERS} WHERE u.rowid = $1");
    client.query_opt(&select, &[&id.0]).await?.as_ref().map(user_row).transpose()
}

pub(crate) async fn user_by_email(client: &Client, email: &UserEmail) -> Result<Option<User>, PostgresError> {
    let select = format!("{SELECT_USERS} WHERE u.email = $1");
    client.query_opt(&select, &[&email.as_str()]).await?.as_ref().map(user_row).transpose()
}

pub(crate) async fn remove_user(
    client: &mut Client,
    email: &UserEmail,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let select = "SELECT rowid FROM console_user WHERE email = $1 FOR UPDATE";
    let user = tx.query_opt(select, &[&email.as_str()]).await?.ok_or(StoreError::UnknownUser)?;
    let user: i64 = user.get(0);
    audit_log::record_for_user(&tx, user, &Event::MemberRemoved(email), actor).await?;
    // A locked link is being used, by a transaction that waits for the lock of the user.
    let delete = "DELETE FROM one_time_link WHERE digest IN (
             SELECT digest FROM one_time_link WHERE email = $1 FOR UPDATE SKIP LOCKED
         )";
    tx.execute(delete, &[&email.as_str()]).await?;
    tx.execute("DELETE FROM console_user WHERE rowid = $1", &[&user]).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn list(client: &Client, workspace: &WorkspaceId) -> Result<Vec<MemberRow>, PostgresError> {
    let workspace = workspace_rowid(&**client, workspace).await?;
    let select = "SELECT u.rowid, u.email, m.role, u.totp_secret IS NOT NULL, m.joined_at, u.last_seen_at
         FROM membership m JOIN console_user u ON u.rowid = m.user_id
         WHERE m.workspace = $1 ORDER BY u.email COLLATE \"C\"";
    let rows = client.query(select, &[&workspace]).await?;
    let member = |row: &Row| {
        Ok(MemberRow {
            user: UserId(row.get(0)),
            email: email(row, 1)?,
            role: role(row.get(2))?,
            has_totp: row.get(3),
            joined_at: time(row.get(4)),
            last_seen_at: row.get::<_, Option<_>>(5).map(time),
        })
    };
    rows.iter().map(member).collect()
}

pub(crate) async fn set_role(
    client: &mut Client,
    workspace: &WorkspaceId,
    user: UserId,
    role: Role,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let member = Member::lock(&tx, workspace, user).await?;
    if member.role == role {
        return Ok(());
    }
    if role != Role::Admin {
        member.check_is_not_last_admin(&tx, workspace).await?;
    }
    let update = "UPDATE membership SET role = $3 WHERE workspace = $1 AND user_id = $2";
    tx.execute(update, &[&member.workspace, &user.0, &role.as_str()]).await?;
    audit_log::record(&tx, member.workspace, &Event::RoleChanged(&member.email, role), actor).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn remove(
    client: &mut Client,
    workspace: &WorkspaceId,
    user: UserId,
    actor: &Actor<'_>,
) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let member = Member::lock(&tx, workspace, user).await?;
    member.check_is_not_last_admin(&tx, workspace).await?;
    let delete = "DELETE FROM membership WHERE workspace = $1 AND user_id = $2";
    tx.execute(delete, &[&member.workspace, &user.0]).await?;
    audit_log::record(&tx, member.workspace, &Event::MemberRemoved(&member.email), actor).await?;
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
    let update = "UPDATE console_user SET password_hash = $2 WHERE rowid = $1 RETURNING email";
    let row = tx.query_opt(update, &[&user.0, &password_hash]).await?.ok_or(StoreError::UnknownUser)?;
    web_sessions::end_others(&tx, user.0, keep).await?;
    let event = &Event::PasswordChanged(&email(&row, 0)?);
    audit_log::record_for_user(&tx, user.0, event, actor).await?;
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
        "UPDATE console_user SET totp_secret = $2, totp_last_step = $3 WHERE rowid = $1 RETURNING email";
    let (secret, step) = (totp.map(|totp| &totp.secret), totp.map_or(0, |totp| bigint(totp.last_step)));
    let row = tx.query_opt(update, &[&user.0, &secret, &step]).await?.ok_or(StoreError::UnknownUser)?;
    tx.execute("DELETE FROM recovery_code WHERE user_id = $1", &[&user.0]).await?;
    add_recovery_codes(&tx, user.0, recovery_codes.iter().map(TokenDigest::as_bytes)).await?;
    web_sessions::end_others(&tx, user.0, keep).await?;
    let email = email(&row, 0)?;
    let event = if totp.is_some() { Event::TotpEnabled(&email) } else { Event::TotpDisabled(&email) };
    audit_log::record_for_user(&tx, user.0, &event, actor).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn add_recovery_codes<'a>(
    tx: &Transaction<'_>,
    user: i64,
    digests: impl Iterator<Item = &'a [u8; 32]>,
) -> Result<(), PostgresError> {
    let digests: Vec<_> = digests.map(<[u8; 32]>::as_slice).collect();
    let insert = "INSERT INTO recovery_code (user_id, digest) SELECT DISTINCT $1::bigint, d FROM unnest($2::bytea[]) AS d";
    tx.execute(insert, &[&user, &digests]).await?;
    Ok(())
}

pub(crate) async fn use_totp_step(client: &Client, user: UserId, step: u64) -> Result<bool, PostgresError> {
    // A concurrent use of the same step waits for the row, and then finds a step that is not earlier.
    let update = "UPDATE console_user SET totp_last_step = $2
         WHERE rowid = $1 AND totp_secret IS NOT NULL AND totp_last_step < $2";
    Ok(client.execute(update, &[&user.0, &bigint(step)]).await? == 1)
}

pub(crate) async fn use_recovery_code(
    client: &Client,
    user: UserId,
    code: &TokenDigest,
) -> Result<bool, PostgresError> {
    let delete = "DELETE FROM recovery_code WHERE user_id = $1 AND digest = $2";
    Ok(client.execute(delete, &[&user.0, &code.as_bytes().as_slice()]).await? == 1)
}

/// A member of a workspace whose row is locked, so that two admins cannot remove each other.
struct Member {
    workspace: i64,
    user: UserId,
    email: UserEmail,
    role: Role,
}

impl Member {
    async fn lock(
        tx: &Transaction<'_>,
        workspace: &WorkspaceId,
        user: UserId,
    ) -> Result<Self, PostgresError> {
        // Conflicts with the locks of credits and of other role changes, and not with the checks of foreign keys.
        let select = "SELECT rowid FROM workspace WHERE id = $1 FOR NO KEY UPDATE";
        let row = tx.query_opt(select, &[&workspace.as_str()]).await?;
        let rowid: i64 = row.ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()))?.get(0);
        let select = "SELECT u.email, m.role FROM membership m JOIN console_user u ON u.rowid = m.user_id
             WHERE m.workspace = $1 AND m.user_id = $2";
        let row = tx.query_opt(select, &[&rowid, &user.0]).await?;
        let row = row.ok_or_else(|| StoreError::NotMember(workspace.clone()))?;
        Ok(Self { workspace: rowid, user, email: email(&row, 0)?, role: role(row.get(1))? })
    }

    async fn check_is_not_last_admin(
        &self,
        tx: &Transaction<'_>,
        workspace: &WorkspaceId,
    ) -> Result<(), PostgresError> {
        let select =
            "SELECT FROM membership WHERE workspace = $1 AND user_id <> $2 AND role = 'admin' LIMIT 1";
        let is_last = self.role == Role::Admin
            && tx.query_opt(select, &[&self.workspace, &self.user.0]).await?.is_none();
        if is_last { Err(StoreError::LastAdmin(workspace.clone()).into()) } else { Ok(()) }
    }
}

fn user_row(row: &Row) -> Result<User, PostgresError> {
    let (workspaces, roles): (Vec<&str>, Vec<&str>) = (row.get(7), row.get(8));
    let membership = |(id, of): (&str, &str)| Ok((parsed("workspace.id", id.parse())?, role(of)?));
    let memberships = workspaces.into_iter().zip(roles).map(membership);
    let secret: Option<Vec<u8>> = row.get(3);
    Ok(User {
        id: UserId(row.get(0)),
        email: email(row, 1)?,
        password_hash: row.get(2),
        totp: secret.map(|secret| Totp { secret, last_step: credits(row.get(4)) }),
        recovery_codes: u32::try_from(row.get::<_, i64>(6)).unwrap_or(u32::MAX),
        created_at: time(row.get(5)),
        memberships: memberships.collect::<Result<_, PostgresError>>()?,
    })
}

fn email(row: &Row, column: usize) -> Result<UserEmail, PostgresError> {
    parsed("console_user.email", row.get::<_, &str>(column).parse())
}

fn role(name: &str) -> Result<Role, PostgresError> {
    parsed("membership.role", name.parse())
}
