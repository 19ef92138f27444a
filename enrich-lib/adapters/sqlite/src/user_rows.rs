//! Statements about users, links and sessions.

use std::net::IpAddr;

use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::{
    AuditEvent, Link, LinkPurpose, Role, Session, Totp, USERS_MAX, User, UserEmail, UserId,
};
use enrich_store::{Actor, Event, StoreError, TokenDigest};
use rusqlite::{Connection, OptionalExtension, Params, Row, ToSql, Transaction, params};

use crate::column::{ms, parsed, time};
use crate::error::SqliteError;
use crate::events;
use crate::workspaces::{live_rowid, rowid};

/// Compares a digest with a parameter, the id that [`TokenDigest::id`] returns.
pub(crate) const HAS_ID: &str = "lower(hex(substr(digest, 1, 8))) = ?";

pub(crate) fn create_link(tx: &Transaction<'_>, link: &Link, actor: &Actor<'_>) -> Result<(), SqliteError> {
    let workspace = live_rowid(tx, &link.workspace)?;
    let select = "SELECT 1 FROM member WHERE workspace = ? AND email = ?";
    let is_user = tx.prepare_cached(select)?.exists(params![workspace, link.email.as_str()])?;
    let (role, event) = match link.purpose {
        LinkPurpose::Join(_) if is_user => {
            return Err(StoreError::AlreadyMember(link.workspace.clone()).into());
        }
        LinkPurpose::Reset if !is_user => return Err(StoreError::UnknownUser.into()),
        LinkPurpose::Join(role) => (Some(role.as_str()), Event::MemberInvited(&link.email, role)),
        LinkPurpose::Reset => (None, Event::UserReset(&link.email)),
    };
    tx.execute("DELETE FROM member_link WHERE expires_at <= ?", [ms(actor.now)])?;
    let select = "SELECT (SELECT count(*) FROM member WHERE workspace = ?1)
             + (SELECT count(*) FROM member_link WHERE workspace = ?1 AND email <> ?2)";
    let users: u32 = tx.query_row(select, params![workspace, link.email.as_str()], |row| row.get(0))?;
    if !is_user && users >= USERS_MAX {
        return Err(StoreError::TooManyUsers(link.workspace.clone()).into());
    }
    tx.execute(
        "INSERT INTO member_link (digest, workspace, email, role, created_by, created_at, expires_at)
         VALUES (?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (workspace, email) DO UPDATE
         SET digest = excluded.digest, role = excluded.role, created_by = excluded.created_by,
             created_at = excluded.created_at, expires_at = excluded.expires_at",
        params![
            link.digest.as_bytes(),
            workspace,
            link.email.as_str(),
            role,
            link.created_by,
            ms(link.created_at),
            ms(link.expires_at)
        ],
    )?;
    events::record(tx, workspace, event, actor)
}

/// Reads the links that match `condition` with two parameters, newest first.
pub(crate) fn links(
    db: &Connection,
    condition: &str,
    values: [&dyn ToSql; 2],
) -> Result<Vec<Link>, SqliteError> {
    let mut select = db.prepare_cached(&format!(
        "SELECT l.digest, w.id, l.role, l.email, l.created_by, l.created_at, l.expires_at
         FROM member_link l JOIN workspace w ON w.rowid = l.workspace
         WHERE {condition} ORDER BY l.created_at DESC, l.digest"
    ))?;
    let rows = select.query_map(values, |row| {
        let role = parsed(row, 2, |role: Option<String>| role.map(|role| role.parse()).transpose())?;
        Ok(Link {
            digest: TokenDigest::from_bytes(row.get(0)?),
            workspace: parsed(row, 1, |id: String| id.parse())?,
            purpose: role.map_or(LinkPurpose::Reset, LinkPurpose::Join),
            email: email(row, 3)?,
            created_by: row.get(4)?,
            created_at: time(row.get(5)?),
            expires_at: time(row.get(6)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns an unused link that has not expired.
pub(crate) fn link(
    db: &Connection,
    digest: &TokenDigest,
    now: Timestamp,
) -> Result<Option<Link>, SqliteError> {
    Ok(links(db, "l.digest = ? AND l.expires_at > ?", [digest.as_bytes(), &ms(now)])?.pop())
}

pub(crate) fn use_link(
    tx: &Transaction<'_>,
    digest: &TokenDigest,
    password_hash: &str,
    actor: &Actor<'_>,
) -> Result<Option<UserId>, SqliteError> {
    let Some(Link { workspace, purpose, email, .. }) = link(tx, digest, actor.now)? else { return Ok(None) };
    let workspace = live_rowid(tx, &workspace)?;
    tx.execute("DELETE FROM member_link WHERE digest = ?", [digest.as_bytes()])?;
    let actor = Actor { name: email.as_str(), ..*actor };
    match purpose {
        LinkPurpose::Join(role) => {
            let insert = "INSERT INTO member (workspace, email, role, password_hash, created_at)
                 VALUES (?, ?, ?, ?, ?) RETURNING rowid";
            let row = params![workspace, email.as_str(), role.as_str(), password_hash, ms(actor.now)];
            let user = UserId(tx.query_row(insert, row, |row| row.get(0))?);
            events::record(tx, workspace, Event::MemberJoined(&email, role), &actor)?;
            Ok(Some(user))
        }
        LinkPurpose::Reset => {
            let update =
                "UPDATE member SET password_hash = ? WHERE workspace = ? AND email = ? RETURNING rowid";
            let row = params![password_hash, workspace, email.as_str()];
            let user = UserId(tx.query_row(update, row, |row| row.get(0))?);
            set_totp(tx, user, None, &[])?;
            end_sessions(tx, user, None)?;
            events::record(tx, workspace, Event::PasswordChanged(&email), &actor)?;
            Ok(Some(user))
        }
    }
}

/// Reads the users that match `condition` with these parameters, by workspace and email.
pub(crate) fn users(db: &Connection, condition: &str, values: impl Params) -> Result<Vec<User>, SqliteError> {
    let mut select = db.prepare_cached(&format!(
        "SELECT u.rowid, w.id, u.email, u.role, u.password_hash, u.totp_secret, u.totp_last_step, u.created_at, u.last_seen_at,
                (SELECT count(*) FROM member_recovery_code c WHERE c.member = u.rowid)
         FROM member u JOIN workspace w ON w.rowid = u.workspace WHERE {condition} ORDER BY w.id, u.email"
    ))?;
    let rows = select.query_map(values, |row| {
        let last_step = row.get(6)?;
        Ok(User {
            id: UserId(row.get(0)?),
            workspace: parsed(row, 1, |id: String| id.parse())?,
            email: email(row, 2)?,
            role: parsed(row, 3, |role: String| role.parse())?,
            password_hash: row.get(4)?,
            totp: row.get::<_, Option<_>>(5)?.map(|secret| Totp { secret, last_step }),
            created_at: time(row.get(7)?),
            last_seen_at: row.get::<_, Option<_>>(8)?.map(time),
            recovery_codes: row.get(9)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Records that a user was active.
pub(crate) fn see_user(tx: &Transaction<'_>, user: i64, now: Timestamp) -> Result<(), SqliteError> {
    tx.execute("UPDATE member SET last_seen_at = ? WHERE rowid = ?", [ms(now), user])?;
    Ok(())
}

pub(crate) fn set_totp(
    tx: &Transaction<'_>,
    user: UserId,
    totp: Option<&Totp>,
    recovery_codes: &[TokenDigest],
) -> Result<(), SqliteError> {
    let update = "UPDATE member SET totp_secret = ?, totp_last_step = ? WHERE rowid = ?";
    let (secret, step) = (totp.map(|totp| &totp.secret), totp.map_or(0, |totp| totp.last_step));
    tx.execute(update, params![secret, step, user.0])?;
    tx.execute("DELETE FROM member_recovery_code WHERE member = ?", [user.0])?;
    for code in recovery_codes {
        let insert = "INSERT INTO member_recovery_code (member, digest) VALUES (?, ?)";
        tx.execute(insert, params![user.0, code.as_bytes()])?;
    }
    Ok(())
}

/// A user to change.
pub(crate) struct Member {
    /// The row of the workspace.
    pub(crate) workspace: i64,
    pub(crate) email: UserEmail,
    role: Role,
}

/// Reads a user. Errors: [`StoreError::UnknownUser`].
pub(crate) fn member(tx: &Transaction<'_>, user: UserId) -> Result<Member, SqliteError> {
    let select = "SELECT workspace, email, role FROM member WHERE rowid = ?";
    let member = tx.query_row(select, [user.0], |row| {
        let role = parsed(row, 2, |role: String| role.parse())?;
        Ok(Member { workspace: row.get(0)?, email: email(row, 1)?, role })
    });
    member.optional()?.ok_or_else(|| StoreError::UnknownUser.into())
}

/// Reads a user of this workspace for a change. Only the operator changes users of a deleted workspace.
///
/// Errors: [`StoreError::UnknownUser`].
fn member_of(
    tx: &Transaction<'_>,
    workspace: &WorkspaceId,
    user: UserId,
    actor: &Actor<'_>,
) -> Result<Member, SqliteError> {
    let workspace = if actor.is_operator() { rowid(tx, workspace) } else { live_rowid(tx, workspace) }?;
    let member = member(tx, user)?;
    if member.workspace == workspace { Ok(member) } else { Err(StoreError::UnknownUser.into()) }
}

pub(crate) fn set_role(
    tx: &Transaction<'_>,
    workspace: &WorkspaceId,
    user: UserId,
    role: Role,
    actor: &Actor<'_>,
) -> Result<(), SqliteError> {
    let member = member_of(tx, workspace, user, actor)?;
    if member.role == role {
        return Ok(());
    }
    events::record(tx, member.workspace, Event::RoleChanged(&member.email, role), actor)?;
    delete_invitations_by(tx, &member, actor)?;
    tx.execute("UPDATE member SET role = ? WHERE rowid = ?", params![role.as_str(), user.0])?;
    check_has_admin(tx, workspace, member.workspace)
}

/// Deletes the open invitations that a user created, so that they end with the user's right to invite.
fn delete_invitations_by(
    tx: &Transaction<'_>,
    member: &Member,
    actor: &Actor<'_>,
) -> Result<(), SqliteError> {
    let delete =
        "DELETE FROM member_link WHERE workspace = ? AND created_by = ? AND role IS NOT NULL RETURNING email";
    let mut delete = tx.prepare_cached(delete)?;
    let rows = delete.query_map(params![member.workspace, member.email.as_str()], |row| email(row, 0))?;
    for invited in rows.collect::<Result<Vec<_>, _>>()? {
        events::record(tx, member.workspace, Event::InvitationRevoked(&invited), actor)?;
    }
    Ok(())
}

pub(crate) fn remove_user(
    tx: &Transaction<'_>,
    workspace: &WorkspaceId,
    user: UserId,
    actor: &Actor<'_>,
) -> Result<(), SqliteError> {
    let member = member_of(tx, workspace, user, actor)?;
    events::record(tx, member.workspace, Event::MemberRemoved(&member.email), actor)?;
    delete_invitations_by(tx, &member, actor)?;
    // Sessions and recovery codes are deleted with the user.
    tx.execute("DELETE FROM member WHERE rowid = ?", [user.0])?;
    let delete = "DELETE FROM member_link WHERE workspace = ? AND email = ?";
    tx.execute(delete, params![member.workspace, member.email.as_str()])?;
    if member.role == Role::Admin && !actor.is_operator() {
        check_has_admin(tx, workspace, member.workspace)?;
    }
    Ok(())
}

/// Checks that a workspace has an admin. Errors: [`StoreError::LastAdmin`].
fn check_has_admin(tx: &Transaction<'_>, workspace: &WorkspaceId, rowid: i64) -> Result<(), SqliteError> {
    let select = "SELECT 1 FROM member WHERE workspace = ? AND role = 'admin'";
    let has_admin = tx.prepare_cached(select)?.exists([rowid])?;
    if has_admin { Ok(()) } else { Err(StoreError::LastAdmin(workspace.clone()).into()) }
}

pub(crate) fn insert_session(tx: &Transaction<'_>, session: &Session) -> Result<(), SqliteError> {
    tx.execute(
        "INSERT INTO member_session (digest, member, created_at, authenticated_at, last_seen_at, address, user_agent)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
        params![
            session.digest.as_bytes(),
            session.user.0,
            ms(session.created_at),
            ms(session.authenticated_at),
            ms(session.last_seen_at),
            session.address.map(|address| address.to_string()),
            session.user_agent
        ],
    )?;
    Ok(())
}

/// Reads the sessions that match `condition` with one parameter, last used first.
pub(crate) fn sessions(
    db: &Connection,
    condition: &str,
    value: impl ToSql,
) -> Result<Vec<Session>, SqliteError> {
    let mut select = db.prepare_cached(&format!(
        "SELECT digest, member, created_at, authenticated_at, last_seen_at, address, user_agent FROM member_session
         WHERE {condition} ORDER BY last_seen_at DESC, digest"
    ))?;
    let rows = select.query_map([value], |row| {
        Ok(Session {
            digest: TokenDigest::from_bytes(row.get(0)?),
            user: UserId(row.get(1)?),
            created_at: time(row.get(2)?),
            authenticated_at: time(row.get(3)?),
            last_seen_at: time(row.get(4)?),
            address: address(row, 5)?,
            user_agent: row.get(6)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Ends all sessions of a user except `keep`, and returns their number.
pub(crate) fn end_sessions(
    tx: &Transaction<'_>,
    user: UserId,
    keep: Option<&TokenDigest>,
) -> Result<u64, SqliteError> {
    let delete = "DELETE FROM member_session WHERE member = ? AND digest IS NOT ?";
    Ok(tx.execute(delete, params![user.0, keep.map(TokenDigest::as_bytes)])? as u64)
}

/// Records that this number of sessions of a user was ended.
pub(crate) fn record_ended(
    tx: &Transaction<'_>,
    user: UserId,
    ended: u64,
    actor: &Actor<'_>,
) -> Result<(), SqliteError> {
    if ended == 0 {
        return Ok(());
    }
    let member = member(tx, user)?;
    events::record(tx, member.workspace, Event::SessionsEnded(&member.email, ended), actor)
}

pub(crate) fn audit_log(
    db: &Connection,
    workspace: &WorkspaceId,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<AuditEvent>, SqliteError> {
    let mut select = db.prepare_cached(
        "SELECT rowid, at, actor, action, subject, address FROM audit_event
         WHERE workspace = ? AND rowid < ? ORDER BY rowid DESC LIMIT ?",
    )?;
    let before = before.unwrap_or(i64::MAX);
    let rows = select.query_map(params![rowid(db, workspace)?, before, limit], |row| audit_event(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Reads the number, time, author, action, subject and address of an event from `first` on.
pub(crate) fn audit_event(row: &Row<'_>, first: usize) -> rusqlite::Result<AuditEvent> {
    Ok(AuditEvent {
        number: row.get(first)?,
        at: time(row.get(first + 1)?),
        actor: row.get(first + 2)?,
        action: row.get(first + 3)?,
        subject: row.get(first + 4)?,
        address: address(row, first + 5)?,
    })
}

pub(crate) fn email(row: &Row<'_>, column: usize) -> rusqlite::Result<UserEmail> {
    parsed(row, column, |email: String| email.parse())
}

fn address(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<IpAddr>> {
    parsed(row, column, |address: Option<String>| address.map(|address| address.parse()).transpose())
}
