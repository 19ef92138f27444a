//! Users of the web application. The operations run on the caller's thread and block it.

use async_trait::async_trait;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::{AuditEvent, Link, Role, Session, Totp, User, UserEmail, UserId};
use enrich_store::{Actor, Event, StoreError, TokenDigest, Users};
use rusqlite::{OptionalExtension, params};

use crate::admin::Admin;
use crate::column::ms;
use crate::events;
use crate::user_rows::{self as rows, HAS_ID, end_sessions, member, see_user, sessions, users};
use crate::workspaces::rowid;

#[async_trait]
impl Users for Admin {
    async fn create_link(&mut self, link: &Link, actor: &Actor<'_>) -> Result<(), StoreError> {
        Ok(self.write(|tx| rows::create_link(tx, link, actor))?)
    }

    async fn link(&mut self, digest: &TokenDigest, now: Timestamp) -> Result<Option<Link>, StoreError> {
        Ok(rows::link(self.db(), digest, now)?)
    }

    async fn invitations(
        &mut self,
        workspace: &WorkspaceId,
        now: Timestamp,
    ) -> Result<Vec<Link>, StoreError> {
        let condition = "l.workspace = ? AND l.role IS NOT NULL AND l.expires_at > ?";
        let workspace = rowid(self.db(), workspace)?;
        Ok(rows::links(self.db(), condition, [&workspace, &ms(now)])?)
    }

    async fn delete_invitation(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError> {
        Ok(self.write(|tx| {
            let workspace = rowid(tx, workspace)?;
            let delete = format!(
                "DELETE FROM member_link WHERE workspace = ? AND role IS NOT NULL AND {HAS_ID} RETURNING email"
            );
            let email =
                tx.query_row(&delete, params![workspace, id], |row| rows::email(row, 0)).optional()?;
            let Some(email) = email else { return Ok(false) };
            events::record(tx, workspace, Event::InvitationRevoked(&email), actor)?;
            Ok(true)
        })?)
    }

    async fn use_link(
        &mut self,
        digest: &TokenDigest,
        password_hash: &str,
        actor: &Actor<'_>,
    ) -> Result<Option<UserId>, StoreError> {
        Ok(self.write(|tx| rows::use_link(tx, digest, password_hash, actor))?)
    }

    async fn users(&mut self, workspace: Option<&WorkspaceId>) -> Result<Vec<User>, StoreError> {
        Ok(match workspace {
            Some(workspace) => {
                rowid(self.db(), workspace).and_then(|id| users(self.db(), "u.workspace = ?", [id]))
            }
            None => users(self.db(), "true", []),
        }?)
    }

    async fn user(&mut self, id: UserId) -> Result<Option<User>, StoreError> {
        Ok(users(self.db(), "u.rowid = ?", [id.0])?.pop())
    }

    async fn user_by_email(
        &mut self,
        workspace: &WorkspaceId,
        email: &UserEmail,
    ) -> Result<Option<User>, StoreError> {
        Ok(users(self.db(), "w.id = ? AND u.email = ?", [workspace.as_str(), email.as_str()])?.pop())
    }

    async fn set_role(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        role: Role,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| rows::set_role(tx, workspace, user, role, actor))?)
    }

    async fn remove_user(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| rows::remove_user(tx, workspace, user, actor))?)
    }

    async fn set_password(
        &mut self,
        user: UserId,
        password_hash: &str,
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let member = member(tx, user)?;
            let update = "UPDATE member SET password_hash = ? WHERE rowid = ?";
            tx.execute(update, params![password_hash, user.0])?;
            let delete = "DELETE FROM member_link WHERE workspace = ? AND email = ?";
            tx.execute(delete, params![member.workspace, member.email.as_str()])?;
            end_sessions(tx, user, keep)?;
            events::record(tx, member.workspace, Event::PasswordChanged(&member.email), actor)
        })?)
    }

    async fn set_totp(
        &mut self,
        user: UserId,
        totp: Option<&Totp>,
        recovery_codes: &[TokenDigest],
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let member = member(tx, user)?;
            rows::set_totp(tx, user, totp, recovery_codes)?;
            end_sessions(tx, user, keep)?;
            let event = if totp.is_some() { Event::TotpEnabled } else { Event::TotpDisabled };
            events::record(tx, member.workspace, event(&member.email), actor)
        })?)
    }

    async fn use_totp_step(&mut self, user: UserId, step: u64) -> Result<bool, StoreError> {
        let update = "UPDATE member SET totp_last_step = ?2
             WHERE rowid = ?1 AND totp_secret IS NOT NULL AND totp_last_step < ?2";
        Ok(self.write(|tx| Ok(tx.execute(update, params![user.0, step])? == 1))?)
    }

    async fn use_recovery_code(
        &mut self,
        user: UserId,
        code: &TokenDigest,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError> {
        let delete = "DELETE FROM member_recovery_code WHERE member = ? AND digest = ?";
        Ok(self.write(|tx| {
            if tx.execute(delete, params![user.0, code.as_bytes()])? == 0 {
                return Ok(false);
            }
            let member = member(tx, user)?;
            events::record(tx, member.workspace, Event::RecoveryCodeUsed(&member.email), actor)?;
            Ok(true)
        })?)
    }

    async fn record_failed_attempt(&mut self, user: UserId, actor: &Actor<'_>) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let member = member(tx, user)?;
            events::record(tx, member.workspace, Event::AttemptFailed(&member.email), actor)
        })?)
    }

    async fn begin_session(
        &mut self,
        session: &Session,
        used_before: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let member = member(tx, session.user)?;
            tx.execute("DELETE FROM member_session WHERE last_seen_at < ?", [ms(used_before)])?;
            rows::insert_session(tx, session)?;
            see_user(tx, session.user.0, session.last_seen_at)?;
            events::record(tx, member.workspace, Event::SignedIn(&member.email), actor)
        })?)
    }

    async fn session(&mut self, digest: &TokenDigest) -> Result<Option<Session>, StoreError> {
        Ok(sessions(self.db(), "digest = ?", digest.as_bytes())?.pop())
    }

    async fn touch_session(&mut self, digest: &TokenDigest, now: Timestamp) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let update = "UPDATE member_session SET last_seen_at = ? WHERE digest = ? RETURNING member";
            let row = params![ms(now), digest.as_bytes()];
            let user = tx.query_row(update, row, |row| row.get(0)).optional()?;
            user.map_or(Ok(()), |user| see_user(tx, user, now))
        })?)
    }

    async fn renew_session(
        &mut self,
        digest: &TokenDigest,
        new: &TokenDigest,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let update = "UPDATE member_session SET digest = ?1, last_seen_at = ?2, authenticated_at = ?2
                 WHERE digest = ?3 RETURNING member";
            let row = params![new.as_bytes(), ms(now), digest.as_bytes()];
            let user = tx.query_row(update, row, |row| row.get(0)).optional()?;
            user.map_or(Ok(()), |user| see_user(tx, user, now))
        })?)
    }

    async fn sessions(&mut self, user: UserId) -> Result<Vec<Session>, StoreError> {
        Ok(sessions(self.db(), "member = ?", user.0)?)
    }

    async fn end_session(&mut self, user: UserId, id: &str, actor: &Actor<'_>) -> Result<bool, StoreError> {
        let delete = format!("DELETE FROM member_session WHERE member = ? AND {HAS_ID}");
        Ok(self.write(|tx| {
            let ended = tx.execute(&delete, params![user.0, id])? as u64;
            rows::record_ended(tx, user, ended, actor)?;
            Ok(ended > 0)
        })?)
    }

    async fn end_sessions(
        &mut self,
        user: UserId,
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<u64, StoreError> {
        Ok(self.write(|tx| {
            let ended = end_sessions(tx, user, keep)?;
            rows::record_ended(tx, user, ended, actor)?;
            Ok(ended)
        })?)
    }

    async fn audit_log(
        &mut self,
        workspace: &WorkspaceId,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        Ok(rows::audit_log(self.db(), workspace, before, limit)?)
    }
}
