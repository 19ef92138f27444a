//! Statements about users, links and sessions.

use std::net::IpAddr;

use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::{
    AuditEvent, Link, LinkPurpose, MemberRow, Role, Session, Totp, User, UserEmail, UserId,
};
use enrich_store::{Actor, Event, StoreError, TokenDigest};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, Transaction, params};

use crate::column::{ms, parsed, time};
use crate::error::SqliteError;
use crate::events;
use crate::workspaces::{live_rowid, rowid};

/// Compares a digest with a parameter, the id that [`TokenDigest::id`] returns.
pub(crate) const HAS_ID: &str = "lower(hex(substr(digest, 1, 8))) = ?";

pub(crate) fn create_link(tx: &Transaction<'_>, link: &Link, actor: &Actor<'_>) -> Result<(), SqliteError> {
    let user = user_rowid(tx, &link.email)?;
    let (workspace, role) = match &link.purpose {
        LinkPurpose::Join { workspace: id, role } => {
            let workspace = live_rowid(tx, id)?;
            let is_member = "SELECT 1 FROM membership WHERE workspace = ? AND user = ?";
            if tx.prepare_cached(is_member)?.exists(params![workspace, user])? {
                return Err(StoreError::AlreadyMember(id.clone()).into());
            }
            events::record(tx, workspace, Event::MemberInvited(&link.email, *role), actor)?;
            (Some(workspace), Some(role.as_str()))
        }
        LinkPurpose::Reset => {
            let user = user.ok_or(StoreError::UnknownUser)?;
            events::record_of_user(tx, user, Event::UserReset(&link.email), actor)?;
            (None, None)
        }
    };
    let delete = "DELETE FROM one_time_link WHERE (email = ? AND workspace IS ?) OR expires_at <= ?";
    tx.execute(delete, params![link.email.as_str(), workspace, ms(actor.now)])?;
    tx.execute(
        "INSERT INTO one_time_link (digest, workspace, role, email, created_by, created_at, expires_at)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
        params![
            link.digest.as_bytes(),
            workspace,
            role,
            link.email.as_str(),
            link.created_by,
            ms(link.created_at),
            ms(link.expires_at)
        ],
    )?;
    Ok(())
}

/// Reads the links that match `condition` with two parameters, newest first.
pub(crate) fn links(
    db: &Connection,
    condition: &str,
    values: [&dyn ToSql; 2],
) -> Result<Vec<Link>, SqliteError> {
    let mut select = db.prepare_cached(&format!(
        "SELECT l.digest, w.id, l.role, l.email, l.created_by, l.created_at, l.expires_at
         FROM one_time_link l LEFT JOIN workspace w ON w.rowid = l.workspace
         WHERE {condition} ORDER BY l.created_at DESC, l.digest"
    ))?;
    let rows = select.query_map(values, |row| {
        let purpose = match row.get::<_, Option<String>>(1)? {
            Some(_) => {
                let workspace = parsed(row, 1, |id: String| id.parse())?;
                LinkPurpose::Join { workspace, role: role(row, 2)? }
            }
            None => LinkPurpose::Reset,
        };
        Ok(Link {
            digest: TokenDigest::from_bytes(row.get(0)?),
            purpose,
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
    let Some(Link { purpose, email, .. }) = link(tx, digest, actor.now)? else { return Ok(None) };
    tx.execute("DELETE FROM one_time_link WHERE digest = ?", [digest.as_bytes()])?;
    let actor = Actor { name: email.as_str(), ..*actor };
    let user = user_rowid(tx, &email)?;
    match purpose {
        LinkPurpose::Join { workspace, role } => {
            let workspace = rowid(tx, &workspace)?;
            let user = match user {
                Some(user) => user,
                None => {
                    let insert =
                        "INSERT INTO console_user (email, password_hash, created_at) VALUES (?, ?, ?)";
                    tx.execute(insert, params![email.as_str(), password_hash, ms(actor.now)])?;
                    tx.last_insert_rowid()
                }
            };
            let insert = "INSERT INTO membership (workspace, user, role, joined_at) VALUES (?, ?, ?, ?)";
            tx.execute(insert, params![workspace, user, role.as_str(), ms(actor.now)])?;
            events::record(tx, workspace, Event::MemberJoined(&email, role), &actor)?;
            Ok(Some(UserId(user)))
        }
        LinkPurpose::Reset => {
            let Some(user) = user.map(UserId) else { return Ok(None) };
            let update = "UPDATE console_user SET password_hash = ? WHERE rowid = ?";
            tx.execute(update, params![password_hash, user.0])?;
            set_totp(tx, user, None, &[])?;
            end_sessions(tx, user, None)?;
            events::record_of_user(tx, user.0, Event::PasswordChanged(&email), &actor)?;
            Ok(Some(user))
        }
    }
}

/// Reads the users that match `condition` with one parameter, by email.
pub(crate) fn users(db: &Connection, condition: &str, value: impl ToSql) -> Result<Vec<User>, SqliteError> {
    let mut select = db.prepare_cached(&format!(
        "SELECT u.rowid, u.email, u.password_hash, u.totp_secret, u.totp_last_step, u.created_at,
                (SELECT count(*) FROM recovery_code c WHERE c.user = u.rowid)
         FROM console_user u WHERE {condition} ORDER BY u.email"
    ))?;
    let mut memberships = db.prepare_cached(
        "SELECT w.id, m.role FROM membership m JOIN workspace w ON w.rowid = m.workspace
         WHERE m.user = ? ORDER BY w.id",
    )?;
    let rows = select.query_and_then([value], |row| {
        let rowid = row.get(0)?;
        let memberships = memberships
            .query_map([rowid], |row| Ok((parsed(row, 0, |id: String| id.parse())?, role(row, 1)?)))?;
        let totp = row.get::<_, Option<Vec<u8>>>(3)?;
        let last_step = row.get::<_, Option<u64>>(4)?.unwrap_or_default();
        Ok(User {
            id: UserId(rowid),
            email: email(row, 1)?,
            password_hash: row.get(2)?,
            totp: totp.map(|secret| Totp { secret, last_step }),
            recovery_codes: row.get(6)?,
            created_at: time(row.get(5)?),
            memberships: memberships.collect::<Result<_, _>>()?,
        })
    })?;
    rows.collect()
}

pub(crate) fn user_rowid(db: &Connection, email: &UserEmail) -> Result<Option<i64>, SqliteError> {
    let select = "SELECT rowid FROM console_user WHERE email = ?";
    Ok(db.query_row(select, [email.as_str()], |row| row.get(0)).optional()?)
}

/// Returns the email of a user. Errors: [`StoreError::UnknownUser`].
pub(crate) fn email_of(db: &Connection, user: UserId) -> Result<UserEmail, SqliteError> {
    let select = "SELECT email FROM console_user WHERE rowid = ?";
    let found = db.query_row(select, [user.0], |row| email(row, 0)).optional()?;
    found.ok_or_else(|| StoreError::UnknownUser.into())
}

/// Records that a user was active.
pub(crate) fn see_user(tx: &Transaction<'_>, user: i64, now: Timestamp) -> Result<(), SqliteError> {
    tx.execute("UPDATE console_user SET last_seen_at = ? WHERE rowid = ?", [ms(now), user])?;
    Ok(())
}

pub(crate) fn set_totp(
    tx: &Transaction<'_>,
    user: UserId,
    totp: Option<&Totp>,
    recovery_codes: &[TokenDigest],
) -> Result<(), SqliteError> {
    let update = "UPDATE console_user SET totp_secret = ?, totp_last_step = ? WHERE rowid = ?";
    let (secret, step) = (totp.map(|totp| &totp.secret), totp.map(|totp| totp.last_step));
    tx.execute(update, params![secret, step, user.0])?;
    tx.execute("DELETE FROM recovery_code WHERE user = ?", [user.0])?;
    for code in recovery_codes {
        let insert = "INSERT INTO recovery_code (user, digest) VALUES (?, ?)";
        tx.execute(insert, params![user.0, code.as_bytes()])?;
    }
    Ok(())
}

/// Reads the members of a workspace, by email.
pub(crate) fn members(db: &Connection, workspace: &WorkspaceId) -> Result<Vec<MemberRow>, SqliteError> {
    let mut select = db.prepare_cached(
        "SELECT u.rowid, u.email, m.role, u.totp_secret IS NOT NULL, m.joined_at, u.last_seen_at
         FROM membership m JOIN console_user u ON u.rowid = m.user WHERE m.workspace = ? ORDER BY u.email",
    )?;
    let rows = select.query_map([rowid(db, workspace)?], |row| {
        Ok(MemberRow {
            user: UserId(row.get(0)?),
            email: email(row, 1)?,
            role: role(row, 2)?,
            has_totp: row.get(3)?,
            joined_at: time(row.get(4)?),
            last_seen_at: row.get::<_, Option<_>>(5)?.map(time),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A member to change.
pub(crate) struct Member {
    /// The row of the workspace.
    pub(crate) workspace: i64,
    pub(crate) email: UserEmail,
    pub(crate) role: Role,
}

/// Reads a member. Errors: [`StoreError::NotMember`].
pub(crate) fn member(
    tx: &Transaction<'_>,
    workspace: &WorkspaceId,
    user: UserId,
) -> Result<Member, SqliteError> {
    let rowid = rowid(tx, workspace)?;
    let select = "SELECT u.email, m.role FROM membership m JOIN console_user u ON u.rowid = m.user
         WHERE m.workspace = ? AND m.user = ?";
    let member = tx.query_row(select, [rowid, user.0], |row| {
        Ok(Member { workspace: rowid, email: email(row, 0)?, role: role(row, 1)? })
    });
    member.optional()?.ok_or_else(|| StoreError::NotMember(workspace.clone()).into())
}

impl Member {
    /// Checks that the workspace has an admin without this member. Errors: [`StoreError::LastAdmin`].
    pub(crate) fn check_not_last_admin(
        &self,
        tx: &Transaction<'_>,
        workspace: &WorkspaceId,
    ) -> Result<(), SqliteError> {
        let select = "SELECT count(*) FROM membership WHERE workspace = ? AND role = 'admin'";
        let admins: u64 = tx.query_row(select, [self.workspace], |row| row.get(0))?;
        if self.role == Role::Admin && admins == 1 {
            return Err(StoreError::LastAdmin(workspace.clone()).into());
        }
        Ok(())
    }
}

pub(crate) fn insert_session(tx: &Transaction<'_>, session: &Session) -> Result<(), SqliteError> {
    tx.execute(
        "INSERT INTO session (digest, user, created_at, authenticated_at, last_seen_at, address, user_agent)
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
        "SELECT digest, user, created_at, authenticated_at, last_seen_at, address, user_agent FROM session
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

pub(crate) fn end_sessions(
    tx: &Transaction<'_>,
    user: UserId,
    keep: Option<&TokenDigest>,
) -> Result<(), SqliteError> {
    let delete = "DELETE FROM session WHERE user = ? AND digest IS NOT ?";
    tx.execute(delete, params![user.0, keep.map(TokenDigest::as_bytes)])?;
    Ok(())
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

pub(crate) fn role(row: &Row<'_>, column: usize) -> rusqlite::Result<Role> {
    parsed(row, column, |role: String| role.parse())
}

fn address(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<IpAddr>> {
    parsed(row, column, |address: Option<String>| address.map(|address| address.parse()).transpose())
}
