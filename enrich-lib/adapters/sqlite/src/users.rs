//! Users of the web application. The operations run on the caller's thread and block it.

use async_trait::async_trait;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::{AuditEvent, Link, MemberRow, Role, Session, Totp, User, UserEmail, UserId};
use enrich_store::{Actor, Event, StoreError, TokenDigest, Users};
use rusqlite::{OptionalExtension, params};

use crate::admin::Admin;
use crate::column::ms;
use crate::events;
use crate::user_rows::{
    self as rows, HAS_ID, email_of, end_sessions, member, see_user, sessions, user_rowid, users,
};
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
        let condition = "l.workspace = ? AND l.expires_at > ?";
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
            let delete =
                format!("DELETE FROM one_time_link WHERE workspace = ? AND {HAS_ID} RETURNING email");
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

    async fn users(&mut self) -> Result<Vec<User>, StoreError> {
        Ok(users(self.db(), "?", true)?)
    }

    async fn user(&mut self, id: UserId) -> Result<Option<User>, StoreError> {
        Ok(users(self.db(), "u.rowid = ?", id.0)?.pop())
    }

    async fn user_by_email(&mut self, email: &UserEmail) -> Result<Option<User>, StoreError> {
        Ok(users(self.db(), "u.email = ?", email.as_str())?.pop())
    }

    async fn remove_user(&mut self, email: &UserEmail, actor: &Actor<'_>) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let user = user_rowid(tx, email)?.ok_or(StoreError::UnknownUser)?;
            events::record_of_user(tx, user, Event::MemberRemoved(email), actor)?;
            tx.execute("DELETE FROM one_time_link WHERE email = ?", [email.as_str()])?;
            // Memberships, sessions and recovery codes are deleted with the user.
            tx.execute("DELETE FROM console_user WHERE rowid = ?", [user])?;
            Ok(())
        })?)
    }

    async fn members(&mut self, workspace: &WorkspaceId) -> Result<Vec<MemberRow>, StoreError> {
        Ok(rows::members(self.db(), workspace)?)
    }

    async fn set_role(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        role: Role,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let member = member(tx, workspace, user)?;
            if member.role == role {
                return Ok(());
            }
            member.check_not_last_admin(tx, workspace)?;
            let update = "UPDATE membership SET role = ? WHERE workspace = ? AND user = ?";
            tx.execute(update, params![role.as_str(), member.workspace, user.0])?;
            events::record(tx, member.workspace, Event::RoleChanged(&member.email, role), actor)
        })?)
    }

    async fn remove_member(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let member = member(tx, workspace, user)?;
            member.check_not_last_admin(tx, workspace)?;
            let delete = "DELETE FROM membership WHERE workspace = ? AND user = ?";
            tx.execute(delete, params![member.workspace, user.0])?;
            events::record(tx, member.workspace, Event::MemberRemoved(&member.email), actor)
        })?)
    }

    async fn set_password(
        &mut self,
        user: UserId,
        password_hash: &str,
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let email = email_of(tx, user)?;
            let update = "UPDATE console_user SET password_hash = ? WHERE rowid = ?";
            tx.execute(update, params![password_hash, user.0])?;
            end_sessions(tx, user, keep)?;
            events::record_of_user(tx, user.0, Event::PasswordChanged(&email), actor)
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
            let email = email_of(tx, user)?;
            rows::set_totp(tx, user, totp, recovery_codes)?;
            end_sessions(tx, user, keep)?;
            let event = if totp.is_some() { Event::TotpEnabled } else { Event::TotpDisabled };
            events::record_of_user(tx, user.0, event(&email), actor)
        })?)
    }

    async fn use_totp_step(&mut self, user: UserId, step: u64) -> Result<bool, StoreError> {
        let update = "UPDATE console_user SET totp_last_step = ?2 WHERE rowid = ?1 AND totp_last_step < ?2";
        Ok(self.write(|tx| Ok(tx.execute(update, params![user.0, step])? == 1))?)
    }

    async fn use_recovery_code(&mut self, user: UserId, code: &TokenDigest) -> Result<bool, StoreError> {
        let delete = "DELETE FROM recovery_code WHERE user = ? AND digest = ?";
        Ok(self.write(|tx| Ok(tx.execute(delete, params![user.0, code.as_bytes()])? == 1))?)
    }

    async fn begin_session(
        &mut self,
        session: &Session,
        used_before: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let email = email_of(tx, session.user)?;
            tx.execute("DELETE FROM session WHERE last_seen_at < ?", [ms(used_before)])?;
            rows::insert_session(tx, session)?;
            see_user(tx, session.user.0, session.last_seen_at)?;
            events::record_of_user(tx, session.user.0, Event::SignedIn(&email), actor)
        })?)
    }

    async fn session(&mut self, digest: &TokenDigest) -> Result<Option<Session>, StoreError> {
        Ok(sessions(self.db(), "digest = ?", digest.as_bytes())?.pop())
    }

    async fn touch_session(
        &mut self,
        digest: &TokenDigest,
        is_authenticated: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        Ok(self.write(|tx| {
            let update =
                "UPDATE session SET last_seen_at = ?1, authenticated_at = iif(?2, ?1, authenticated_at)
                 WHERE digest = ?3 RETURNING user";
            let row = params![ms(now), is_authenticated, digest.as_bytes()];
            let user = tx.query_row(update, row, |row| row.get(0)).optional()?;
            user.map_or(Ok(()), |user| see_user(tx, user, now))
        })?)
    }

    async fn sessions(&mut self, user: UserId) -> Result<Vec<Session>, StoreError> {
        Ok(sessions(self.db(), "user = ?", user.0)?)
    }

    async fn end_session(&mut self, user: UserId, id: &str) -> Result<bool, StoreError> {
        let delete = format!("DELETE FROM session WHERE user = ? AND {HAS_ID}");
        Ok(self.write(|tx| Ok(tx.execute(&delete, params![user.0, id])? > 0))?)
    }

    async fn end_sessions(&mut self, user: UserId, keep: Option<&TokenDigest>) -> Result<(), StoreError> {
        Ok(self.write(|tx| end_sessions(tx, user, keep))?)
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
