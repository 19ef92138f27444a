//! One-time links: invitations and password resets.
//!
//! The row of a link is locked before that of its user.

use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::{Link, LinkPurpose, Role, UserEmail, UserId};
use enrich_store::{Actor, Event, StoreError, TokenDigest};
use tokio_postgres::{Row, Transaction};

use crate::column::{at, live_workspace_rowid, parsed, time, token_digest, workspace_rowid};
use crate::error::PostgresError;
use crate::pool::Client;
use crate::{audit_log, web_sessions};

const SELECT_LINKS: &str = "SELECT l.digest, w.id, l.role, l.email, l.created_by, l.created_at, l.expires_at
     FROM one_time_link l LEFT JOIN workspace w ON w.rowid = l.workspace";

pub(crate) async fn create(client: &mut Client, link: &Link, actor: &Actor<'_>) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let delete = "DELETE FROM one_time_link WHERE digest IN (
             SELECT digest FROM one_time_link WHERE expires_at <= $1 FOR UPDATE SKIP LOCKED
         )";
    tx.execute(delete, &[&at(actor.now)]).await?;
    match &link.purpose {
        LinkPurpose::Join { workspace, role } => {
            let rowid = live_workspace_rowid(&tx, workspace).await?;
            let select = "SELECT FROM membership m JOIN console_user u ON u.rowid = m.user_id
                 WHERE m.workspace = $1 AND u.email = $2";
            if tx.query_opt(select, &[&rowid, &link.email.as_str()]).await?.is_some() {
                return Err(StoreError::AlreadyMember(workspace.clone()).into());
            }
            insert(&tx, link, Some((rowid, *role))).await?;
            let event = Event::MemberInvited(&link.email, *role);
            audit_log::record(&tx, rowid, &event, actor).await?;
        }
        LinkPurpose::Reset => {
            insert(&tx, link, None).await?;
            let select = "SELECT rowid FROM console_user WHERE email = $1 FOR KEY SHARE";
            let user = tx.query_opt(select, &[&link.email.as_str()]).await?.ok_or(StoreError::UnknownUser)?;
            audit_log::record_for_user(&tx, user.get(0), &Event::UserReset(&link.email), actor).await?;
        }
    }
    Ok(tx.commit().await?)
}

async fn insert(
    tx: &Transaction<'_>,
    link: &Link,
    membership: Option<(i64, Role)>,
) -> Result<(), PostgresError> {
    let insert =
        "INSERT INTO one_time_link (digest, email, workspace, role, created_by, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (email, coalesce(workspace, 0)) DO UPDATE
         SET digest = excluded.digest, role = excluded.role, created_by = excluded.created_by,
             created_at = excluded.created_at, expires_at = excluded.expires_at";
    let digest = link.digest.as_bytes().as_slice();
    let (workspace, role) = membership.map(|(workspace, role)| (workspace, role.as_str())).unzip();
    let (email, created_by) = (link.email.as_str(), &link.created_by);
    let (created_at, expires_at) = (at(link.created_at), at(link.expires_at));
    tx.execute(insert, &[&digest, &email, &workspace, &role, created_by, &created_at, &expires_at]).await?;
    Ok(())
}

pub(crate) async fn find(
    client: &Client,
    digest: &TokenDigest,
    now: Timestamp,
) -> Result<Option<Link>, PostgresError> {
    let select = format!("{SELECT_LINKS} WHERE l.digest = $1 AND l.expires_at > $2");
    let row = client.query_opt(&select, &[&digest.as_bytes().as_slice(), &at(now)]).await?;
    row.as_ref().map(link).transpose()
}

pub(crate) async fn invitations(
    client: &Client,
    workspace: &WorkspaceId,
    now: Timestamp,
) -> Result<Vec<Link>, PostgresError> {
    let workspace = workspace_rowid(&**client, workspace).await?;
    let select = format!(
        "{SELECT_LINKS} WHERE l.workspace = $1 AND l.expires_at > $2 ORDER BY l.created_at DESC, l.digest"
    );
    client.query(&select, &[&workspace, &at(now)]).await?.iter().map(link).collect()
}

pub(crate) async fn delete_invitation(
    client: &mut Client,
    workspace: &WorkspaceId,
    id: &str,
    actor: &Actor<'_>,
) -> Result<bool, PostgresError> {
    let tx = client.transaction().await?;
    let workspace = workspace_rowid(&tx, workspace).await?;
    let delete = "DELETE FROM one_time_link
         WHERE workspace = $1 AND encode(substr(digest, 1, 8), 'hex') = $2 RETURNING email";
    let deleted = tx.query(delete, &[&workspace, &id]).await?;
    for row in &deleted {
        let event = &Event::InvitationRevoked(&email(row, 0)?);
        audit_log::record(&tx, workspace, event, actor).await?;
    }
    tx.commit().await?;
    Ok(!deleted.is_empty())
}

pub(crate) async fn use_up(
    client: &mut Client,
    digest: &TokenDigest,
    password_hash: &str,
    actor: &Actor<'_>,
) -> Result<Option<UserId>, PostgresError> {
    let tx = client.transaction().await?;
    // A concurrent use waits for this one and then finds no row.
    let delete =
        "DELETE FROM one_time_link WHERE digest = $1 AND expires_at > $2 RETURNING email, workspace, role";
    let Some(link) = tx.query_opt(delete, &[&digest.as_bytes().as_slice(), &at(actor.now)]).await? else {
        return Ok(None);
    };
    let email = email(&link, 0)?;
    let actor = Actor { name: email.as_str(), ..*actor };
    let membership: (Option<i64>, Option<&str>) = (link.get(1), link.get(2));
    let user = match membership {
        (Some(workspace), Some(role)) => {
            let role = parsed("one_time_link.role", role.parse())?;
            Some(join(&tx, &email, password_hash, workspace, role, &actor).await?)
        }
        _ => reset(&tx, &email, password_hash, &actor).await?,
    };
    tx.commit().await?;
    Ok(user.map(UserId))
}

async fn join(
    tx: &Transaction<'_>,
    email: &UserEmail,
    password_hash: &str,
    workspace: i64,
    role: Role,
    actor: &Actor<'_>,
) -> Result<i64, PostgresError> {
    // The update changes nothing. It locks and returns the row of an existing user.
    let insert = "INSERT INTO console_user AS u (email, password_hash, created_at) VALUES ($1, $2, $3)
         ON CONFLICT (email) DO UPDATE SET created_at = u.created_at RETURNING rowid";
    let user: i64 = tx.query_one(insert, &[&email.as_str(), &password_hash, &at(actor.now)]).await?.get(0);
    let insert = "INSERT INTO membership (workspace, user_id, role, joined_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT DO NOTHING";
    if tx.execute(insert, &[&workspace, &user, &role.as_str(), &at(actor.now)]).await? == 1 {
        audit_log::record(tx, workspace, &Event::MemberJoined(email, role), actor).await?;
    }
    Ok(user)
}

/// Sets the password. Returns `None` if the user was removed.
async fn reset(
    tx: &Transaction<'_>,
    email: &UserEmail,
    password_hash: &str,
    actor: &Actor<'_>,
) -> Result<Option<i64>, PostgresError> {
    let update = "UPDATE console_user SET password_hash = $2, totp_secret = NULL, totp_last_step = 0
         WHERE email = $1 RETURNING rowid";
    let Some(row) = tx.query_opt(update, &[&email.as_str(), &password_hash]).await? else {
        return Ok(None);
    };
    let user = row.get(0);
    tx.execute("DELETE FROM recovery_code WHERE user_id = $1", &[&user]).await?;
    web_sessions::end_others(tx, user, None).await?;
    audit_log::record_for_user(tx, user, &Event::PasswordChanged(email), actor).await?;
    Ok(Some(user))
}

fn link(row: &Row) -> Result<Link, PostgresError> {
    let membership: (Option<&str>, Option<&str>) = (row.get(1), row.get(2));
    let purpose = match membership {
        (Some(workspace), Some(role)) => LinkPurpose::Join {
            workspace: parsed("workspace.id", workspace.parse())?,
            role: parsed("one_time_link.role", role.parse())?,
        },
        _ => LinkPurpose::Reset,
    };
    Ok(Link {
        digest: token_digest("one_time_link.digest", row.get(0))?,
        purpose,
        email: email(row, 3)?,
        created_by: row.get(4),
        created_at: time(row.get(5)),
        expires_at: time(row.get(6)),
    })
}

fn email(row: &Row, column: usize) -> Result<UserEmail, PostgresError> {
    parsed("one_time_link.email", row.get::<_, &str>(column).parse())
}
