//! Users, with their passwords and second factors.

use enrich_lib::model::WorkspaceId;

use super::lock::rowid;
use super::log;
use super::member::{Member, VERIFIED, verified};
use super::sessions::end_sessions;
use super::transaction::{Accounts, Tx, transact};
use crate::action::Action;
use crate::actor::Actor;
use crate::error::StoreError;
use crate::token::TokenDigest;
use crate::users::{Renewal, Role, Totp, User, UserEmail, UserId};
use crate::value::{Row, Value, values};

/// The columns of [`User`].
const SELECT: &str =
    "SELECT u.rowid, w.id, u.email, u.role, u.password_hash, u.totp_secret, u.totp_last_step,
         (SELECT count(*) FROM member_recovery_code c WHERE c.member = u.rowid), u.created_at, u.last_seen_at
     FROM member u JOIN workspace w ON w.rowid = u.workspace";

fn user(row: &mut Row) -> Result<User, StoreError> {
    Ok(User {
        id: row.read()?,
        workspace: row.read()?,
        email: row.read()?,
        role: row.read()?,
        password_hash: row.read()?,
        totp: {
            let (secret, last_step): (Option<Vec<u8>>, _) = (row.read()?, row.read()?);
            secret.map(|secret| Totp { secret, last_step })
        },
        recovery_codes: row.read()?,
        created_at: row.read()?,
        last_seen_at: row.read()?,
    })
}

impl Accounts {
    /// Returns the users of `workspace`, or all users, by workspace and email.
    pub async fn users(&mut self, workspace: Option<&WorkspaceId>) -> Result<Vec<User>, StoreError> {
        let mut tx = self.read().await?;
        let Some(workspace) = workspace else { return users(&mut *tx, "1 = 1", &[]).await };
        let workspace = rowid(&mut *tx, workspace).await?;
        users(&mut *tx, "u.workspace = $1", values![workspace]).await
    }

    /// Returns a user.
    pub async fn user(&mut self, id: UserId) -> Result<Option<User>, StoreError> {
        let mut tx = self.read().await?;
        Ok(users(&mut *tx, "u.rowid = $1", values![id]).await?.pop())
    }

    /// Returns the user with this email of the workspace with this name in any case. Returns `None` also for a
    /// workspace that does not exist.
    pub async fn user_by_email(
        &mut self,
        workspace: &WorkspaceId,
        email: &UserEmail,
    ) -> Result<Option<User>, StoreError> {
        let mut tx = self.read().await?;
        let condition = "lower(w.id) = $1 AND u.email = $2";
        Ok(users(&mut *tx, condition, values![&workspace.as_str().to_ascii_lowercase(), email]).await?.pop())
    }

    /// Changes the role of a user of `workspace`. The event is `member.role_changed`. There is none if the
    /// user has that role already. The open invitations of a user who is no longer an admin are deleted, with
    /// an event `member.invitation_revoked` each.
    ///
    /// Errors: [`StoreError::UnknownUser`]; [`StoreError::LastAdmin`] if the workspace would have no admin.
    pub async fn set_role(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        role: Role,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        transact!(self, tx, {
            let member = Member::lock_in(tx, workspace, user, actor).await?;
            if member.role == role {
                return Ok(());
            }
            let subject = log::user_with_role(&member.email, role);
            log::record(tx, member.workspace, Action::RoleChanged, &subject, actor).await?;
            delete_invitations_by(tx, member.workspace, &member.email, actor).await?;
            tx.execute("UPDATE member SET role = $1 WHERE rowid = $2", values![role, user]).await?;
            check_has_admin(tx, workspace, &member).await
        })
    }

    /// Deletes a user of `workspace` with all sessions, unused links, and invitations that the user created.
    /// The user's keys stay valid. The event is `member.removed`, and `member.invitation_revoked` for each
    /// invitation.
    ///
    /// Errors: [`StoreError::UnknownUser`]; [`StoreError::LastAdmin`] if the workspace would have no admin
    /// and the author is not the operator.
    pub async fn remove_user(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        transact!(self, tx, {
            let member = Member::lock_in(tx, workspace, user, actor).await?;
            log::record(tx, member.workspace, Action::MemberRemoved, member.email.as_str(), actor).await?;
            delete_invitations_by(tx, member.workspace, &member.email, actor).await?;
            // Sessions and recovery codes are deleted with the user.
            tx.execute("DELETE FROM member WHERE rowid = $1", values![user]).await?;
            delete_links(tx, &member).await?;
            if member.role == Role::Admin && !actor.is_operator() {
                check_has_admin(tx, workspace, &member).await?;
            }
            Ok(())
        })
    }

    /// Sets a password, deletes an unused reset link and the open invitations that the user created, and ends
    /// all sessions of the user except the renewed one. The event is `user.password_changed`, and
    /// `member.invitation_revoked` for each invitation.
    ///
    /// Errors: [`StoreError::UnknownUser`].
    pub async fn set_password(
        &mut self,
        user: UserId,
        password_hash: &str,
        renewal: Option<&Renewal>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        transact!(self, tx, {
            let member = Member::lock(tx, user).await?;
            let update = "UPDATE member SET password_hash = $1 WHERE rowid = $2";
            tx.execute(update, values![password_hash, user]).await?;
            delete_links(tx, &member).await?;
            log::record(tx, member.workspace, Action::PasswordChanged, member.email.as_str(), actor).await?;
            delete_invitations_by(tx, member.workspace, &member.email, actor).await?;
            end_sessions(tx, user, renewal, actor.now).await
        })
    }

    /// Enables the second factor with these recovery codes, or disables it. The codes replace all earlier
    /// ones. Ends all sessions of the user except the renewed one. The event is `user.totp_enabled` or
    /// `user.totp_disabled`.
    ///
    /// Errors: [`StoreError::UnknownUser`].
    pub async fn set_totp(
        &mut self,
        user: UserId,
        totp: Option<&Totp>,
        recovery_codes: &[TokenDigest],
        renewal: Option<&Renewal>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        transact!(self, tx, {
            let member = Member::lock(tx, user).await?;
            set_totp(tx, user, totp, recovery_codes).await?;
            let action = if totp.is_some() { Action::TotpEnabled } else { Action::TotpDisabled };
            log::record(tx, member.workspace, action, member.email.as_str(), actor).await?;
            end_sessions(tx, user, renewal, actor.now).await
        })
    }

    /// Marks a time step of the second factor of `user` as used. Returns `false` if it or a later one was
    /// used before, or if the password or the second factor was changed since `user` was read.
    pub async fn use_totp_step(&mut self, user: &User, step: u64) -> Result<bool, StoreError> {
        // A concurrent use of the same step waits for the row, and then finds a step that is not earlier.
        let update = format!(
            "UPDATE member SET totp_last_step = $4
             WHERE {VERIFIED} AND totp_secret IS NOT NULL AND totp_last_step < $4"
        );
        let values: Vec<_> = verified(user).into_iter().chain([step.into()]).collect();
        transact!(self, tx, Ok(tx.execute(&update, &values).await? == 1))
    }

    /// Uses up a recovery code. Returns `false` if the user has no such code, or if the password or the
    /// second factor was changed since `user` was read. The event is `user.recovery_code_used`.
    pub async fn use_recovery_code(
        &mut self,
        user: &User,
        code: &TokenDigest,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError> {
        let delete = "DELETE FROM member_recovery_code WHERE member = $1 AND digest = $2";
        transact!(self, tx, {
            let Some(member) = Member::lock_verified(tx, user).await? else { return Ok(false) };
            if tx.execute(delete, values![user.id, code]).await? == 0 {
                return Ok(false);
            }
            log::record(tx, member.workspace, Action::RecoveryCodeUsed, member.email.as_str(), actor).await?;
            Ok(true)
        })
    }

    /// Records an attempt with a wrong password or code, or that further ones are refused. The event is
    /// `user.attempt_failed` or `user.attempts_blocked`.
    ///
    /// Errors: [`StoreError::UnknownUser`].
    pub async fn record_attempt(
        &mut self,
        user: UserId,
        is_blocked: bool,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError> {
        let action = if is_blocked { Action::AttemptsBlocked } else { Action::AttemptFailed };
        transact!(self, tx, {
            let member = Member::lock(tx, user).await?;
            log::record(tx, member.workspace, action, member.email.as_str(), actor).await
        })
    }
}

/// Reads the users that match `condition`, by workspace and email.
pub(super) async fn users(
    tx: &mut Tx<'_>,
    condition: &str,
    values: &[Value<'_>],
) -> Result<Vec<User>, StoreError> {
    tx.rows(&format!("{SELECT} WHERE {condition} ORDER BY w.id, u.email"), values, user).await
}

/// Sets or removes the second factor of a user with a locked workspace.
pub(super) async fn set_totp(
    tx: &mut Tx<'_>,
    user: UserId,
    totp: Option<&Totp>,
    recovery_codes: &[TokenDigest],
) -> Result<(), StoreError> {
    let update = "UPDATE member SET totp_secret = $1, totp_last_step = $2 WHERE rowid = $3";
    let (secret, step) = (totp.map(|totp| &totp.secret), totp.map_or(0, |totp| totp.last_step));
    tx.execute(update, values![secret, step, user]).await?;
    tx.execute("DELETE FROM member_recovery_code WHERE member = $1", values![user]).await?;
    for code in recovery_codes {
        let insert = "INSERT INTO member_recovery_code (member, digest) VALUES ($1, $2)
             ON CONFLICT (member, digest) DO NOTHING";
        tx.execute(insert, values![user, code]).await?;
    }
    Ok(())
}

/// Deletes the open invitations that a user created: they end with the user's right to invite, and with a
/// password that others may have known.
pub(super) async fn delete_invitations_by(
    tx: &mut Tx<'_>,
    workspace: i64,
    user: &UserEmail,
    actor: &Actor<'_>,
) -> Result<(), StoreError> {
    let delete = "DELETE FROM member_link WHERE workspace = $1 AND created_by = $2 AND role IS NOT NULL
         RETURNING email";
    let invited: Vec<UserEmail> = tx.rows(delete, values![workspace, user], |row| row.read()).await?;
    for email in &invited {
        log::record(tx, workspace, Action::InvitationRevoked, email.as_str(), actor).await?;
    }
    Ok(())
}

/// Deletes the unused links of a user.
async fn delete_links(tx: &mut Tx<'_>, member: &Member) -> Result<(), StoreError> {
    let delete = "DELETE FROM member_link WHERE workspace = $1 AND email = $2";
    tx.execute(delete, values![member.workspace, &member.email]).await?;
    Ok(())
}

/// Checks that a locked workspace has an admin. Errors: [`StoreError::LastAdmin`].
async fn check_has_admin(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    member: &Member,
) -> Result<(), StoreError> {
    let select = "SELECT rowid FROM member WHERE workspace = $1 AND role = 'admin' LIMIT 1";
    let has_admin = tx.exists(select, values![member.workspace]).await?;
    if has_admin { Ok(()) } else { Err(StoreError::LastAdmin(workspace.clone())) }
}
