//! The actions of the audit log, with the names under which it stores them.

macro_rules! actions {
    ($($action:ident = $name:literal,)*) => {
        /// The action of an event. Exhaustive: a program that shows actions needs a text for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action {
            $(#[doc = concat!("`", $name, "`")] $action,)*
        }

        impl Action {
            /// Returns the name, such as `key.created`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$action => $name,)*
                }
            }

            /// Returns the action with this name, unless a newer version has added it.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$action),)*
                    _ => None,
                }
            }
        }
    };
}

actions! {
    WorkspaceCreated = "workspace.created",
    WorkspaceLimitChanged = "workspace.limit_changed",
    WorkspaceLowBalanceChanged = "workspace.low_balance_changed",
    WorkspaceRenamed = "workspace.renamed",
    WorkspaceSuspended = "workspace.suspended",
    WorkspaceResumed = "workspace.resumed",
    WorkspaceDeleted = "workspace.deleted",
    CreditsGranted = "credits.granted",
    CreditsAdjusted = "credits.adjusted",
    CreditsRefunded = "credits.refunded",
    KeyCreated = "key.created",
    KeyRevoked = "key.revoked",
    KeyDisabled = "key.disabled",
    KeyEnabled = "key.enabled",
    KeyRotated = "key.rotated",
    MemberInvited = "member.invited",
    InvitationRevoked = "member.invitation_revoked",
    MemberJoined = "member.joined",
    RoleChanged = "member.role_changed",
    MemberRemoved = "member.removed",
    UserReset = "user.reset",
    PasswordChanged = "user.password_changed",
    TotpEnabled = "user.totp_enabled",
    TotpDisabled = "user.totp_disabled",
    SignedIn = "user.signed_in",
    SessionsEnded = "user.sessions_ended",
    AttemptFailed = "user.attempt_failed",
    AttemptsBlocked = "user.attempts_blocked",
    RecoveryCodeUsed = "user.recovery_code_used",
}
