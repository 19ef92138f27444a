//! The users of the web application. Each operation is one transaction with its events in the audit log.

use async_trait::async_trait;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::{AuditEvent, Link, Role, Session, Totp, User, UserEmail, UserId};
use enrich_store::{Actor, StoreError, TokenDigest, Users};

use crate::admin::Admin;
use crate::{audit_log, links, members, web_sessions};

#[async_trait]
impl Users for Admin {
    async fn create_link(&mut self, link: &Link, actor: &Actor<'_>) -> Result<(), StoreError> {
        Ok(links::create(&mut self.client, link, actor).await?)
    }

    async fn link(&mut self, digest: &TokenDigest, now: Timestamp) -> Result<Option<Link>, StoreError> {
        Ok(links::find(&self.client, digest, now).await?)
    }

    async fn invitations(
        &mut self,
        workspace: &WorkspaceId,
        now: Timestamp,
    ) -> Result<Vec<Link>, StoreError> {
        Ok(links::invitations(&self.client, workspace, now).await?)
    }

    async fn delete_invitation(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError> {
        Ok(links::delete_invitation(&mut self.client, workspace, id, actor).await?)
    }

    async fn use_link(
        &mut self,
        digest: &TokenDigest,
        password_hash: &str,
        actor: &Actor<'_>,
    ) -> Result<Option<UserId>, StoreError> {
        Ok(links::use_up(&mut self.client, digest, password_hash, actor).await?)
    }

    async fn users(&mut self, workspace: Option<&WorkspaceId>) -> Result<Vec<User>, StoreError> {
        Ok(members::users(&self.client, workspace).await?)
    }

    async fn user(&mut self, id: UserId) -> Result<Option<User>, StoreError> {
        Ok(members::user(&self.client, id).await?)
    }

    async fn user_by_email(
        &mut self,
        workspace: &WorkspaceId,
        email: &UserEmail,
    ) -> Result<Option<User>, StoreError> {
        Ok(members::user_by_email(&self.client, workspace, email).await?)
    }

    async fn set_role(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        role: Role,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(members::set_role(&mut self.client, workspace, user, role, actor).await?)
    }

    async fn remove_user(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(members::remove(&mut self.client, workspace, user, actor).await?)
    }

    async fn set_password(
        &mut self,
        user: UserId,
        password_hash: &str,
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(members::set_password(&mut self.client, user, password_hash, keep, actor).await?)
    }

    async fn set_totp(
        &mut self,
        user: UserId,
        totp: Option<&Totp>,
        recovery_codes: &[TokenDigest],
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(members::set_totp(&mut self.client, user, totp, recovery_codes, keep, actor).await?)
    }

    async fn use_totp_step(&mut self, user: UserId, step: u64) -> Result<bool, StoreError> {
        Ok(members::use_totp_step(&self.client, user, step).await?)
    }

    async fn use_recovery_code(
        &mut self,
        user: UserId,
        code: &TokenDigest,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError> {
        Ok(members::use_recovery_code(&mut self.client, user, code, actor).await?)
    }

    async fn record_failed_attempt(&mut self, user: UserId, actor: &Actor<'_>) -> Result<(), StoreError> {
        Ok(members::record_failed_attempt(&self.client, user, actor).await?)
    }

    async fn begin_session(
        &mut self,
        session: &Session,
        used_before: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Ok(web_sessions::begin(&mut self.client, session, used_before, actor).await?)
    }

    async fn session(&mut self, digest: &TokenDigest) -> Result<Option<Session>, StoreError> {
        Ok(web_sessions::find(&self.client, digest).await?)
    }

    async fn touch_session(&mut self, digest: &TokenDigest, now: Timestamp) -> Result<(), StoreError> {
        Ok(web_sessions::touch(&mut self.client, digest, now).await?)
    }

    async fn renew_session(
        &mut self,
        digest: &TokenDigest,
        new: &TokenDigest,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        Ok(web_sessions::renew(&mut self.client, digest, new, now).await?)
    }

    async fn sessions(&mut self, user: UserId) -> Result<Vec<Session>, StoreError> {
        Ok(web_sessions::list(&self.client, user).await?)
    }

    async fn end_session(&mut self, user: UserId, id: &str, actor: &Actor<'_>) -> Result<bool, StoreError> {
        Ok(web_sessions::end(&mut self.client, user, id, actor).await?)
    }

    async fn end_sessions(
        &mut self,
        user: UserId,
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<u64, StoreError> {
        Ok(web_sessions::end_all(&mut self.client, user, keep, actor).await?)
    }

    async fn audit_log(
        &mut self,
        workspace: &WorkspaceId,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        Ok(audit_log::read(&self.client, workspace, before, limit).await?)
    }
}
