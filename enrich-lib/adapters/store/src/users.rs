//! Users of the web application: accounts, one-time links, sessions and the audit log.
//!
//! A user belongs to one workspace. The same email in two workspaces is two users with two passwords, because
//! an email proves nothing: the holder of a link of one workspace gains nothing in another.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::model::{Timestamp, WorkspaceId};
use thiserror::Error;

use crate::actor::Actor;
use crate::error::StoreError;
use crate::text::is_visible;
use crate::token::TokenDigest;

/// The email of a user, in lower case. It identifies the user in a workspace.
///
/// `Debug` redacts it, because it must not appear in a log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserEmail(String);

/// The reason why a text is not a [`UserEmail`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected an email address, such as ada@example.com")]
pub struct UserEmailError;

impl UserEmail {
    /// Returns the address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserEmail {
    type Err = UserEmailError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let email = Email::parse(text.trim()).ok().filter(|email| is_visible(email.as_str()));
        let email = email.ok_or(UserEmailError)?;
        Ok(Self(email.as_str().to_lowercase()))
    }
}

impl fmt::Debug for UserEmail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserEmail(…)")
    }
}

/// The maximum number of users and open links of a workspace.
pub const USERS_MAX: u32 = 500;

/// The number of a user in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub i64);

/// The permissions of a user in a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Creates keys and manages its own keys.
    Member,
    /// Also manages the keys of all members, invites and removes members.
    Admin,
}

impl Role {
    /// Returns the name of the role.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
        }
    }
}

/// The reason why a text is not a [`Role`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected `admin` or `member`")]
pub struct RoleError;

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "member" => Ok(Self::Member),
            "admin" => Ok(Self::Admin),
            _ => Err(RoleError),
        }
    }
}

/// A user.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The number of the user.
    pub id: UserId,
    /// The workspace that the user belongs to.
    pub workspace: WorkspaceId,
    /// The email, which is the name to sign in with.
    pub email: UserEmail,
    /// The role in the workspace.
    pub role: Role,
    /// The hash of the password, in the PHC string format.
    pub password_hash: String,
    /// The secret of the authenticator app, if the second factor is enabled.
    pub totp: Option<Totp>,
    /// The number of unused recovery codes.
    pub recovery_codes: u32,
    /// When the user was created.
    pub created_at: Timestamp,
    /// When the user was last active.
    pub last_seen_at: Option<Timestamp>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("id", &self.id)
            .field("workspace", &self.workspace)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// The second factor of a user (RFC 6238).
#[derive(Clone, PartialEq, Eq)]
pub struct Totp {
    /// The secret that the authenticator app shares, 20 bytes.
    pub secret: Vec<u8>,
    /// The last time step whose code was used. Codes of it and of earlier steps are invalid.
    pub last_step: u64,
}

impl fmt::Debug for Totp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Totp(…)")
    }
}

/// The purpose of a one-time link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPurpose {
    /// Creates a user with this role.
    Join(Role),
    /// Sets a new password, and removes the second factor.
    Reset,
}

/// A one-time link, without its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The digest of the token.
    pub digest: TokenDigest,
    /// The workspace of the user.
    pub workspace: WorkspaceId,
    /// The purpose of the link.
    pub purpose: LinkPurpose,
    /// The email of the user who receives it.
    pub email: UserEmail,
    /// The name of the [`Actor`] who created it.
    pub created_by: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// A session of a signed-in user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The digest of its token.
    pub digest: TokenDigest,
    /// The user.
    pub user: UserId,
    /// When the user signed in.
    pub created_at: Timestamp,
    /// When the user last entered the password or a code.
    pub authenticated_at: Timestamp,
    /// When the session was last used. Lags by up to a minute.
    pub last_seen_at: Timestamp,
    /// The address of the client at sign-in.
    pub address: Option<IpAddr>,
    /// The `User-Agent` of the client at sign-in, shortened.
    pub user_agent: String,
}

/// An event of the audit log.
#[derive(Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// Its number. The numbers increase.
    pub number: i64,
    /// When it happened.
    pub at: Timestamp,
    /// The author: an email, or [`Actor::OPERATOR`].
    pub actor: String,
    /// The name of the event, such as `key.created`.
    pub action: String,
    /// The changed object, such as `key_0123abcd (shop)`.
    pub subject: String,
    /// The address of the author's client.
    pub address: Option<IpAddr>,
}

impl fmt::Debug for AuditEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditEvent")
            .field("number", &self.number)
            .field("action", &self.action)
            .finish_non_exhaustive()
    }
}

/// Operations on the users of the web application.
///
/// Each operation is atomic, and includes its event in the audit log. A cancelled call may or may not have
/// taken effect. Operations on a workspace that does not exist return [`StoreError::UnknownWorkspace`].
#[async_trait]
pub trait Users: Send {
    /// Creates a one-time link. A new link replaces an unused one for the same email in the same workspace.
    /// Expired links are removed. The event is `member.invited` or `user.reset`.
    ///
    /// Errors: [`StoreError::UnknownWorkspace`]; [`StoreError::TooManyUsers`]; [`StoreError::AlreadyMember`]
    /// for an invitation of a user; [`StoreError::UnknownUser`] for a reset of a user who does not exist.
    async fn create_link(&mut self, link: &Link, actor: &Actor<'_>) -> Result<(), StoreError>;

    /// Returns an unused link that has not expired.
    async fn link(&mut self, digest: &TokenDigest, now: Timestamp) -> Result<Option<Link>, StoreError>;

    /// Returns the invitations to `workspace` that are unused and have not expired, newest first.
    async fn invitations(&mut self, workspace: &WorkspaceId, now: Timestamp)
    -> Result<Vec<Link>, StoreError>;

    /// Deletes an invitation to `workspace` by the id of its digest. Returns `false` if there is none. The
    /// event is `member.invitation_revoked`.
    async fn delete_invitation(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError>;

    /// Uses up a link and returns its user, or `None` if the link is unknown, used or expired.
    ///
    /// An invitation creates a user with `password_hash`. A reset sets the password, removes the second
    /// factor and the recovery codes, and ends all sessions. `actor.name` is ignored: the author is the user.
    /// The event is `member.joined` or `user.password_changed`.
    async fn use_link(
        &mut self,
        digest: &TokenDigest,
        password_hash: &str,
        actor: &Actor<'_>,
    ) -> Result<Option<UserId>, StoreError>;

    /// Returns the users of `workspace`, or all users, by workspace and email.
    async fn users(&mut self, workspace: Option<&WorkspaceId>) -> Result<Vec<User>, StoreError>;

    /// Returns a user.
    async fn user(&mut self, id: UserId) -> Result<Option<User>, StoreError>;

    /// Returns the user of `workspace` with this email. Returns `None` also for a workspace that does not
    /// exist.
    async fn user_by_email(
        &mut self,
        workspace: &WorkspaceId,
        email: &UserEmail,
    ) -> Result<Option<User>, StoreError>;

    /// Changes the role of a user of `workspace`. The event is `member.role_changed`. There is none if the
    /// user has that role already. The open invitations of a user who is no longer an admin are deleted, with
    /// an event `member.invitation_revoked` each.
    ///
    /// Errors: [`StoreError::UnknownUser`]; [`StoreError::LastAdmin`] if the workspace would have no admin.
    async fn set_role(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        role: Role,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError>;

    /// Deletes a user of `workspace` with all sessions, unused links, and invitations that the user created.
    /// The user's keys stay valid. The event is `member.removed`, and `member.invitation_revoked` for each
    /// invitation.
    ///
    /// Errors: [`StoreError::UnknownUser`]; [`StoreError::LastAdmin`] if the workspace would have no admin
    /// and the author is not the operator.
    async fn remove_user(
        &mut self,
        workspace: &WorkspaceId,
        user: UserId,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError>;

    /// Sets a password, deletes an unused reset link, and ends all sessions of the user except `keep`. The
    /// event is `user.password_changed`.
    ///
    /// Errors: [`StoreError::UnknownUser`].
    async fn set_password(
        &mut self,
        user: UserId,
        password_hash: &str,
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError>;

    /// Enables the second factor with these recovery codes, or disables it. The codes replace all earlier
    /// ones. Ends all sessions of the user except `keep`. The event is `user.totp_enabled` or
    /// `user.totp_disabled`.
    ///
    /// Errors: [`StoreError::UnknownUser`].
    async fn set_totp(
        &mut self,
        user: UserId,
        totp: Option<&Totp>,
        recovery_codes: &[TokenDigest],
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError>;

    /// Marks a time step as used. Returns `false` if it or a later one was used before, or if the user has no
    /// second factor.
    async fn use_totp_step(&mut self, user: UserId, step: u64) -> Result<bool, StoreError>;

    /// Uses up a recovery code. Returns `false` if the user has no such code. The event is
    /// `user.recovery_code_used`.
    async fn use_recovery_code(
        &mut self,
        user: UserId,
        code: &TokenDigest,
        actor: &Actor<'_>,
    ) -> Result<bool, StoreError>;

    /// Records an attempt with a wrong password or code. The event is `user.attempt_failed`.
    ///
    /// Errors: [`StoreError::UnknownUser`].
    async fn record_failed_attempt(&mut self, user: UserId, actor: &Actor<'_>) -> Result<(), StoreError>;

    /// Stores a new session, and removes all sessions that were last used before `used_before`. The event is
    /// `user.signed_in`.
    ///
    /// Errors: [`StoreError::UnknownUser`].
    async fn begin_session(
        &mut self,
        session: &Session,
        used_before: Timestamp,
        actor: &Actor<'_>,
    ) -> Result<(), StoreError>;

    /// Returns a session.
    async fn session(&mut self, digest: &TokenDigest) -> Result<Option<Session>, StoreError>;

    /// Records the use of a session. Does nothing if the session has ended.
    async fn touch_session(&mut self, digest: &TokenDigest, now: Timestamp) -> Result<(), StoreError>;

    /// Replaces the token of a session after the user entered the password again, and records this
    /// authentication. The creation date stays, so that the session does not last longer. Does nothing if the
    /// session has ended.
    async fn renew_session(
        &mut self,
        digest: &TokenDigest,
        new: &TokenDigest,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Returns the sessions of a user, last used first.
    async fn sessions(&mut self, user: UserId) -> Result<Vec<Session>, StoreError>;

    /// Ends the session of `user` whose digest has this id. Returns `false` if there is none. The event is
    /// `user.sessions_ended`.
    ///
    /// `actor` must not require the session that ends.
    async fn end_session(&mut self, user: UserId, id: &str, actor: &Actor<'_>) -> Result<bool, StoreError>;

    /// Ends all sessions of a user except `keep`, and returns their number. The event is
    /// `user.sessions_ended`, unless there are none.
    async fn end_sessions(
        &mut self,
        user: UserId,
        keep: Option<&TokenDigest>,
        actor: &Actor<'_>,
    ) -> Result<u64, StoreError>;

    /// Returns up to `limit` events of `workspace` with a number less than `before`, newest first.
    async fn audit_log(
        &mut self,
        workspace: &WorkspaceId,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditEvent>, StoreError>;
}
