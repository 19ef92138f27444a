//! Users of the web application: accounts, one-time links, sessions and the audit log.
//!
//! A user belongs to one workspace. The same email in two workspaces is two users with two passwords, because
//! an email proves nothing: the holder of a link of one workspace gains nothing in another.

use std::net::IpAddr;
use std::str::FromStr;

use enrich_lib::email::Email;
use enrich_lib::model::{Timestamp, WorkspaceId};
use thiserror::Error;
use unicode_normalization::UnicodeNormalization;

use crate::text::is_visible;
use crate::token::TokenDigest;

/// The email of a user, in lower case and in the composed form of Unicode (NFC). It identifies the user in a workspace.
///
/// `Debug` redacts it, because it must not appear in a log.
#[derive(Clone, derive_more::Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[debug("UserEmail(…)")]
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
        // First, because lower case can be longer than what was entered.
        let text: String = text.trim().to_lowercase().nfc().collect();
        let is_valid = Email::parse(&text).is_ok() && is_visible(&text);
        if is_valid { Ok(Self(text)) } else { Err(UserEmailError) }
    }
}

/// The maximum number of users and open links of a workspace.
pub const USERS_MAX: u32 = 500;

/// The maximum number of sessions of a user. A further one ends another.
pub const SESSIONS_MAX: u32 = 50;

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
#[derive(Clone, derive_more::Debug, PartialEq, Eq)]
#[debug("User {{ id: {id:?}, workspace: {workspace:?}, role: {role:?}, .. }}")]
pub struct User {
    /// The number of the user.
    pub id: UserId,
    /// The workspace that the user belongs to.
    pub workspace: WorkspaceId,
    /// The email, which is the name to sign in with.
    pub email: UserEmail,
    /// The role in the workspace.
    pub role: Role,
    /// The hash of the password, in the PHC string format, or `reset …` until a reset link is used.
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

/// The second factor of a user (RFC 6238).
#[derive(Clone, derive_more::Debug, PartialEq, Eq)]
#[debug("Totp(…)")]
pub struct Totp {
    /// The secret that the authenticator app shares, 20 bytes.
    pub secret: Vec<u8>,
    /// The last time step whose code was used. Codes of it and of earlier steps are invalid.
    pub last_step: u64,
}

/// The purpose of a one-time link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPurpose {
    /// Creates a user with this role.
    Join(Role),
    /// Sets a new password, and removes the second factor. The old password ends when the link is created.
    Reset,
}

/// A one-time link, without its token.
#[derive(Clone, derive_more::Debug, PartialEq, Eq)]
pub struct Link {
    /// The digest of the token.
    pub digest: TokenDigest,
    /// The workspace of the user.
    pub workspace: WorkspaceId,
    /// The purpose of the link.
    pub purpose: LinkPurpose,
    /// The email of the user who receives it.
    pub email: UserEmail,
    /// The name of the [`Actor`](crate::Actor) who created it.
    #[debug(skip)]
    pub created_by: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// A session of a signed-in user.
#[derive(Clone, derive_more::Debug, PartialEq, Eq)]
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
    #[debug(skip)]
    pub address: Option<IpAddr>,
    /// The `User-Agent` of the client at sign-in, shortened.
    #[debug(skip)]
    pub user_agent: String,
}

/// A new token of a session, after its user entered the password or a code. A request with the old token that
/// is in progress then changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The digest of the old token.
    pub old: TokenDigest,
    /// The digest of the new token.
    pub new: TokenDigest,
}

/// An event of the audit log.
#[derive(Clone, derive_more::Debug, PartialEq, Eq)]
#[debug("AuditEvent {{ number: {number:?}, action: {action:?}, .. }}")]
pub struct AuditEvent {
    /// Its number. The numbers increase.
    pub number: i64,
    /// When it happened.
    pub at: Timestamp,
    /// The author: an email, or [`Actor::OPERATOR`](crate::Actor::OPERATOR).
    pub actor: String,
    /// The name of the event, such as `key.created`.
    pub action: String,
    /// The changed object, such as `key_0123abcd (shop)`.
    pub subject: String,
    /// The address of the author's client.
    pub address: Option<IpAddr>,
}
