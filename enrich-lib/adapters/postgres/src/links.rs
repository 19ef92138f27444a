//! One-time links: invitations and password resets.
//!
//! Each change runs under the lock of the workspace.

use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::{Link, LinkPurpose, USERS_MAX, UserEmail, UserId};
use enrich_store::{Actor, Event, StoreError, TokenDigest};
use tokio_postgres::Row;

use crate::column::{at, parsed, time, token_digest, workspace_rowid};
use crate::error::PostgresError;
use crate::members::lock_workspace;
use crate::pool::{Client, Value};
use crate::{audit_log, web_sessions};

const SELECT_LINKS: &str = "SELECT l.digest, w.id, l.role, l.email, l.created_by, l.created_at, l.expires_at
     FROM member_link l JOIN workspace w ON w.rowid = l.workspace";

pub(crate) async fn create(client: &mut Client, link: &Link, actor: &Actor<'_>) -> Result<(), PostgresError> {
    let tx = client.transaction().await?;
    let delete = "DELETE FROM member_link WHERE digest IN (
             SELECT digest FROM member_link WHERE expires_at <= $1 FOR UPDATE SKIP LOCKED
         )";
    tx.execute(delete, &[&at(actor.now)]).await?;
    let workspace = lock_workspace(&tx, &link.workspace, true).await?;
    let email = link.email.as_str();
    let select = "SELECT FROM member WHERE workspace = $1 AND email = $2";
    let is_user = tx.query_opt(select, &[&workspace, &email]).await?.is_some();
    let (role, event) = match link.purpose {
        LinkPurpose::Join(_) if is_user => {
            return Err(StoreError::AlreadyMember(link.workspace.clone()).into());
        }
        LinkPurpose::Reset if !is_user => return Err(StoreError::UnknownUser.into()),
        LinkPurpose::Join(role) => (Some(role.as_str()), Event::MemberInvited(&link.email, role)),
        LinkPurpose::Reset => (None, Event::UserReset(&link.email)),
    };
    let select = "SELECT (SELECT count(*) FROM member WHERE workspace = $1)
             + (SELECT count(*) FROM member_link WHERE workspace = $1 AND email <> $2)";
    let users: i64 = tx.query_one(select, &[&workspace, &email]).await?.get(0);
    if !is_user && users >= i64::from(USERS_MAX) {
        return Err(StoreError::TooManyUsers(link.workspace.clone()).into());
    }
    let insert =
        "INSERT INTO member_link (digest, workspace, email, role, created_by, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (workspace, email) DO UPDATE
         SET digest = excluded.digest, role = excluded.role, created_by = excluded.created_by,
             created_at = excluded.created_at, expires_at = excluded.expires_at";
    let (digest, created_by) = (link.digest.as_bytes().as_slice(), &link.created_by);
    let (created_at, expires_at) = (at(link.created_at), at(link.expires_at));
    tx.execute(insert, &[&digest, &workspace, &email, &role, created_by, &created_at, &expires_at]).await?;
    audit_log::record(&tx, workspace, &event, actor).await?;
    Ok(tx.commit().await?)
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
        "{SELECT_LINKS} WHERE l.workspace = $1 AND l.role IS NOT NULL AND l.expires_at > $2
         ORDER BY l.created_at DESC, l.digest"
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
    let workspace = lock_workspace(&tx, workspace, false).await?;
    let delete = "DELETE FROM member_link
         WHERE workspace = $1 AND role IS NOT NULL AND encode(substr(digest, 1, 8), 'hex') = $2 RETURNING email";
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
    let Some(Link { workspace, purpose, email, .. }) = find(client, digest, actor.now).await? else {
        return Ok(None);
    };
    let tx = client.transaction().await?;
    let workspace = lock_workspace(&tx, &workspace, true).await?;
    // A concurrent use waits for this one and then finds no row.
    let delete = "DELETE FROM member_link WHERE digest = $1";
    if tx.execute(delete, &[&digest.as_bytes().as_slice()]).await? == 0 {
        return Ok(None);
    }
    let actor = Actor { name: email.as_str(), ..*actor };
    let (user, event) = match purpose {
        LinkPurpose::Join(role) => {
            let insert = "INSERT INTO member (workspace, email, role, password_hash, created_at)
                 VALUES ($1, $2, $3, $4, $5) RETURNING rowid";
            let (role_name, now) = (role.as_str(), at(actor.now));
            let values: [Value<'_>; 5] = [&workspace, &actor.name, &role_name, &password_hash, &now];
            let row = tx.query_one(insert, &values).await?;
            (row.get(0), Event::MemberJoined(&email, role))
        }
        LinkPurpose::Reset => {
            let update = "UPDATE member SET password_hash = $3, totp_secret = NULL, totp_last_step = 0
                 WHERE workspace = $1 AND email = $2 RETURNING rowid";
            let user: i64 = tx.query_one(update, &[&workspace, &actor.name, &password_hash]).await?.get(0);
            tx.execute("DELETE FROM member_recovery_code WHERE member = $1", &[&user]).await?;
            web_sessions::end_others(&tx, user, None).await?;
            (user, Event::PasswordChanged(&email))
        }
    };
    audit_log::record(&tx, workspace, &event, &actor).await?;
    tx.commit().await?;
    Ok(Some(UserId(user)))
}

fn link(row: &Row) -> Result<Link, PostgresError> {
    let role =
        row.get::<_, Option<&str>>(2).map(|role| parsed("member_link.role", role.parse())).transpose()?;
    Ok(Link {
        digest: token_digest("member_link.digest", row.get(0))?,
        workspace: parsed("workspace.id", row.get::<_, &str>(1).parse())?,
        purpose: role.map_or(LinkPurpose::Reset, LinkPurpose::Join),
        email: email(row, 3)?,
        created_by: row.get(4),
        created_at: time(row.get(5)),
        expires_at: time(row.get(6)),
    })
}

fn email(row: &Row, column: usize) -> Result<UserEmail, PostgresError> {
    parsed("member_link.email", row.get::<_, &str>(column).parse())
}
