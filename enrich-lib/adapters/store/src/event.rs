//! The events of the audit log. Every store records the same actions and subjects.

use std::fmt;

use enrich_lib::key::KeyId;
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_lib::window::Quota;

use crate::action::Action;
use crate::users::{Role, UserEmail};

/// An administrative change to record in the audit log.
///
/// `Debug` omits the subject, because emails must not appear in a log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A workspace was created.
    WorkspaceCreated(&'a WorkspaceId),
    /// The burst limit was changed to this one.
    WorkspaceLimitChanged(Quota),
    /// The threshold of the warning was changed to this number of credits.
    WorkspaceLowBalanceChanged(u64),
    /// The display name was changed to this one.
    WorkspaceRenamed(&'a str),
    /// A workspace was suspended.
    WorkspaceSuspended(&'a WorkspaceId),
    /// A workspace was resumed.
    WorkspaceResumed(&'a WorkspaceId),
    /// A workspace was deleted.
    WorkspaceDeleted(&'a WorkspaceId),
    /// Credits were granted.
    CreditsGranted(u64),
    /// The granted credits were corrected by this number, for this reason.
    CreditsAdjusted(i64, &'a str),
    /// The credits of a lookup were refunded, for this reason, which may be empty.
    CreditsRefunded(LookupId, &'a str),
    /// A key was created, with this label.
    KeyCreated(KeyId, &'a str),
    /// A test key was created, with this label.
    TestKeyCreated(KeyId, &'a str),
    /// A key was revoked.
    KeyRevoked(KeyId, &'a str),
    /// A key was disabled.
    KeyDisabled(KeyId, &'a str),
    /// A key was enabled again.
    KeyEnabled(KeyId, &'a str),
    /// A key was replaced by another one.
    KeyRotated {
        /// The old key.
        old: KeyId,
        /// The label of both.
        label: &'a str,
        /// The new key.
        new: KeyId,
    },
    /// A user was invited.
    MemberInvited(&'a UserEmail, Role),
    /// An invitation was deleted.
    InvitationRevoked(&'a UserEmail),
    /// A user accepted an invitation.
    MemberJoined(&'a UserEmail, Role),
    /// The role of a member was changed to this one.
    RoleChanged(&'a UserEmail, Role),
    /// A member was removed.
    MemberRemoved(&'a UserEmail),
    /// A link to set a new password was created.
    UserReset(&'a UserEmail),
    /// A user set a new password.
    PasswordChanged(&'a UserEmail),
    /// A user enabled the second factor.
    TotpEnabled(&'a UserEmail),
    /// The second factor was disabled.
    TotpDisabled(&'a UserEmail),
    /// A user signed in.
    SignedIn(&'a UserEmail),
    /// This number of sessions of a user was ended, by signing out or otherwise.
    SessionsEnded(&'a UserEmail, u64),
    /// An attempt to sign in as a user, or to confirm the user's password, failed.
    AttemptFailed(&'a UserEmail),
    /// Further attempts for a user are refused until the end of the window.
    AttemptsBlocked(&'a UserEmail),
    /// A user signed in with a recovery code in place of a code of the second factor.
    RecoveryCodeUsed(&'a UserEmail),
}

impl Event<'_> {
    /// Returns the action.
    pub const fn action(&self) -> Action {
        match self {
            Self::WorkspaceCreated(_) => Action::WorkspaceCreated,
            Self::WorkspaceLimitChanged(_) => Action::WorkspaceLimitChanged,
            Self::WorkspaceLowBalanceChanged(_) => Action::WorkspaceLowBalanceChanged,
            Self::WorkspaceRenamed(_) => Action::WorkspaceRenamed,
            Self::WorkspaceSuspended(_) => Action::WorkspaceSuspended,
            Self::WorkspaceResumed(_) => Action::WorkspaceResumed,
            Self::WorkspaceDeleted(_) => Action::WorkspaceDeleted,
            Self::CreditsGranted(_) => Action::CreditsGranted,
            Self::CreditsAdjusted(..) => Action::CreditsAdjusted,
            Self::CreditsRefunded(..) => Action::CreditsRefunded,
            Self::KeyCreated(..) | Self::TestKeyCreated(..) => Action::KeyCreated,
            Self::KeyRevoked(..) => Action::KeyRevoked,
            Self::KeyDisabled(..) => Action::KeyDisabled,
            Self::KeyEnabled(..) => Action::KeyEnabled,
            Self::KeyRotated { .. } => Action::KeyRotated,
            Self::MemberInvited(..) => Action::MemberInvited,
            Self::InvitationRevoked(_) => Action::InvitationRevoked,
            Self::MemberJoined(..) => Action::MemberJoined,
            Self::RoleChanged(..) => Action::RoleChanged,
            Self::MemberRemoved(_) => Action::MemberRemoved,
            Self::UserReset(_) => Action::UserReset,
            Self::PasswordChanged(_) => Action::PasswordChanged,
            Self::TotpEnabled(_) => Action::TotpEnabled,
            Self::TotpDisabled(_) => Action::TotpDisabled,
            Self::SignedIn(_) => Action::SignedIn,
            Self::SessionsEnded(..) => Action::SessionsEnded,
            Self::AttemptFailed(_) => Action::AttemptFailed,
            Self::AttemptsBlocked(_) => Action::AttemptsBlocked,
            Self::RecoveryCodeUsed(_) => Action::RecoveryCodeUsed,
        }
    }

    /// Returns what was changed, such as `key_0123abcd (shop)` or `ada@example.com (admin)`.
    pub fn subject(&self) -> String {
        match self {
            Self::WorkspaceCreated(id)
            | Self::WorkspaceSuspended(id)
            | Self::WorkspaceResumed(id)
            | Self::WorkspaceDeleted(id) => id.to_string(),
            Self::WorkspaceLimitChanged(quota) => {
                format!("{} requests per {} s", quota.limit(), quota.window_seconds())
            }
            Self::WorkspaceRenamed(name) => (*name).to_owned(),
            Self::WorkspaceLowBalanceChanged(credits) | Self::CreditsGranted(credits) => credits.to_string(),
            Self::CreditsAdjusted(credits, reason) => format!("{credits:+}: {reason}"),
            Self::CreditsRefunded(lookup_id, "") => lookup_id.to_string(),
            Self::CreditsRefunded(lookup_id, reason) => format!("{lookup_id}: {reason}"),
            Self::KeyCreated(id, label)
            | Self::KeyRevoked(id, label)
            | Self::KeyDisabled(id, label)
            | Self::KeyEnabled(id, label) => format!("{id} ({label})"),
            Self::TestKeyCreated(id, label) => format!("{id} ({label}), a test key"),
            Self::KeyRotated { old, label, new } => format!("{old} ({label}) to {new}"),
            Self::MemberInvited(email, role)
            | Self::MemberJoined(email, role)
            | Self::RoleChanged(email, role) => format!("{} ({})", email.as_str(), role.as_str()),
            Self::SessionsEnded(email, number) => format!("{} ({number})", email.as_str()),
            Self::InvitationRevoked(email)
            | Self::MemberRemoved(email)
            | Self::UserReset(email)
            | Self::PasswordChanged(email)
            | Self::TotpEnabled(email)
            | Self::TotpDisabled(email)
            | Self::SignedIn(email)
            | Self::AttemptFailed(email)
            | Self::AttemptsBlocked(email)
            | Self::RecoveryCodeUsed(email) => email.as_str().to_owned(),
        }
    }
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Event").field(&self.action()).finish()
    }
}
