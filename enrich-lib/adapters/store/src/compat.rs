//! The traits of today, until every store uses the shared statements.

use std::num::NonZeroI64;

use async_trait::async_trait;
use enrich_lib::credit::Balance;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::window::Quota;

use crate::accounts::Accounts;
use crate::actor::Actor;
use crate::admin::Admin;
use crate::error::StoreError;
use crate::records::{Audit, GrantRow, KeyRow, NewKey, Refund, SpendPage, WorkspaceRow};
use crate::token::TokenDigest;
use crate::usage::{Day, UsageRow};
use crate::users::{AuditEvent, Link, Role, Session, Totp, User, UserEmail, UserId, Users};
use crate::workspace::WorkspaceChange;

#[async_trait]
impl Admin for Accounts {
    async fn create_workspace(
        &mut self,
        id: &WorkspaceId,
        quota: Quota,
        credits: u64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        Self::create_workspace(self, id, quota, credits, now).await
    }

    async fn workspaces(&mut self) -> Result<Vec<WorkspaceRow>, StoreError> {
        Self::workspaces(self).await
    }

    async fn workspace(&mut self, id: &WorkspaceId) -> Result<WorkspaceRow, StoreError> {
        Self::workspace(self, id).await
    }

    async fn low_balances(&mut self) -> Result<Vec<WorkspaceRow>, StoreError> {
        Self::low_balances(self).await
    }

    async fn change_workspace(
        &mut self,
        id: &WorkspaceId,
        changes: &[WorkspaceChange<'_>],
        actor: &Actor<'_>,
    ) -> Result<WorkspaceRow, StoreError> {
        Self::change_workspace(self, id, changes, actor).await
    }

    async fn grant(
        &mut self,
        workspace: &WorkspaceId,
        credits: u64,
        now: Timestamp,
    ) -> Result<Balance, StoreError> {
        Self::grant(self, workspace, credits, now).await
    }

    async fn adjust(
        &mut self,
        workspace: &WorkspaceId,
        credits: NonZeroI64,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Balance, StoreError> {
        Self::adjust(self, workspace, credits, reason, actor).await
    }

    async fn refund(
        &mut self,
        lookup_id: LookupId,
        reason: &str,
        actor: &Actor<'_>,
    ) -> Result<Refund, StoreError> {
        Self::refund(self, lookup_id, reason, actor).await
    }

    async fn balance(&mut self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        Self::balance(self, workspace).await
    }

    async fn grants(&mut self, workspace: &WorkspaceId) -> Result<Vec<GrantRow>, StoreError> {
        Self::grants(self, workspace).await
    }

    async fn create_key(&mut self, key: &NewKey<'_>, actor: &Actor<'_>) -> Result<KeyId, StoreError> {
        Self::create_key(self, key, actor).await
    }

    async fn keys(&mut self, workspace: &WorkspaceId, today: Day) -> Result<Vec<KeyRow>, StoreError> {
        Self::keys(self, workspace, today).await
    }

    async fn key_page(
        &mut self,
        workspace: &WorkspaceId,
        now: Timestamp,
        offset: u32,
        limit: u32,
    ) -> Result<Vec<KeyRow>, StoreError> {
        Self::key_page(self, workspace, now, offset, limit).await
    }

    async fn key(&mut self, workspace: &WorkspaceId, id: KeyId, today: Day) -> Result<KeyRow, StoreError> {
        Self::key(self, workspace, id, today).await
    }

    async fn revoke_key(&mut self, id: KeyId, actor: &Actor<'_>) -> Result<(), StoreError> {
        Self::revoke_key(self, id, actor).await
    }

    async fn set_key_enabled(
        &mut self,
        id: KeyId,
        is_enabled: bool,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Self::set_key_enabled(self, id, is_enabled, actor).await
    }

    async fn rotate_key(
        &mut self,
        id: KeyId,
        new: &ApiKey,
        old_expires_at: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<KeyId, StoreError> {
        Self::rotate_key(self, id, new, old_expires_at, actor).await
    }

    async fn usage(
        &mut self,
        workspace: &WorkspaceId,
        first: Day,
        last: Day,
    ) -> Result<Vec<UsageRow>, StoreError> {
        Self::usage(self, workspace, first, last).await
    }

    async fn spends(
        &mut self,
        workspace: &WorkspaceId,
        first: LookupId,
        end: LookupId,
    ) -> Result<SpendPage, StoreError> {
        Self::spends(self, workspace, first, end).await
    }

    async fn remove_spends(&mut self, before: Day) -> Result<u64, StoreError> {
        Self::remove_spends(self, before).await
    }

    async fn audit(&mut self) -> Result<Audit, StoreError> {
        Self::audit(self).await
    }
}

#[async_trait]
impl Users for Accounts {
    async fn create_link(&mut self, link: &Link, actor: &Actor<'_>) -> Result<(), StoreError> {
        Self::create_link(self, link, actor).await
    }

    async fn link(&mut self, digest: &TokenDigest, now: Timestamp) -> Result<Option<Link>, StoreError> {
        Self::link(self, digest, now).await
    }

    async fn invitations(
        &mut self,
        workspace: &WorkspaceId,
        now: Timestamp,
    ) -> Result<Vec<Link>, StoreError> {
        Self::invitations(self, workspace, now).await
    }

    async fn delete_invitation(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError> {
        Self::delete_invitation(self, workspace, id, actor).await
    }

    async fn use_link(
        &mut self,
        digest: &TokenDigest,
        password_hash: &str,
        actor: &Actor<'_>,
    ) -> Result<Option<UserId>, StoreError> {
        Self::use_link(self, digest, password_hash, actor).await
    }

    async fn users(&mut self, workspace: Option<&WorkspaceId>) -> Result<Vec<User>, StoreError> {
        Self::users(self, workspace).await
    }

    async fn user(&mut self, id: UserId) -> Result<Option<User>, StoreError> {
        Self::user(self, id).await
    }

    async fn user_by_email(
        &mut self,
        workspace: &WorkspaceId,
        email: &UserEmail,
    ) -> Result<Option<User>, StoreError> {
        Self::user_by_email(self, workspace, email).await
    }

    async fn set_role(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        role: Role,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Self::set_role(self, workspace, user, role, actor).await
    }

    async fn remove_user(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Self::remove_user(self, workspace, user, actor).await
    }

    async fn set_password(
        &mut self,
        user: UserId,
        password_hash: &str,
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Self::set_password(self, user, password_hash, keep, actor).await
    }

    async fn set_totp(
        &mut self,
        user: UserId,
        totp: Option<&Totp>,
        recovery_codes: &[TokenDigest],
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Self::set_totp(self, user, totp, recovery_codes, keep, actor).await
    }

    async fn use_totp_step(&mut self, user: UserId, step: u64) -> Result<bool, StoreError> {
        Self::use_totp_step(self, user, step).await
    }

    async fn use_recovery_code(
        &mut self,
        user: UserId,
        code: &TokenDigest,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError> {
        Self::use_recovery_code(self, user, code, actor).await
    }

    async fn record_failed_attempt(&mut self, user: UserId, actor: &Actor<'_>) -> Result<(), StoreError> {
        Self::record_failed_attempt(self, user, actor).await
    }

    async fn begin_session(
        &mut self,
        session: &Session,
        used_before: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        Self::begin_session(self, session, used_before, actor).await
    }

    async fn session(&mut self, digest: &TokenDigest) -> Result<Option<Session>, StoreError> {
        Self::session(self, digest).await
    }

    async fn touch_session(&mut self, digest: &TokenDigest, now: Timestamp) -> Result<(), StoreError> {
        Self::touch_session(self, digest, now).await
    }

    async fn renew_session(
        &mut self,
        digest: &TokenDigest,
        new: &TokenDigest,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        Self::renew_session(self, digest, new, now).await
    }

    async fn sessions(&mut self, user: UserId) -> Result<Vec<Session>, StoreError> {
        Self::sessions(self, user).await
    }

    async fn end_session(&mut self, user: UserId, id: &str, actor: &Actor<'_>) -> Result<bool, StoreError> {
        Self::end_session(self, user, id, actor).await
    }

    async fn end_sessions(
        &mut self,
        user: UserId,
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<u64, StoreError> {
        Self::end_sessions(self, user, keep, actor).await
    }

    async fn audit_log(
        &mut self,
        workspace: &WorkspaceId,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        Self::audit_log(self, workspace, before, limit).await
    }
}
