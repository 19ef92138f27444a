//! The audit log.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use enrich_store::Action;
use enrich_store::users::AuditEvent;
use serde::Deserialize;

use crate::console::Console;
use crate::error::Error;
use crate::extract::Query;
use crate::session::Member;
use crate::view::{Moment as _, Shell, page};

/// The number of events on a page.
const EVENTS: u32 = 50;

#[derive(Template)]
#[template(path = "audit_log.html")]
struct AuditLogPage {
    shell: Shell,
    base: String,
    events: Vec<AuditEvent>,
    is_first: bool,
    /// The parameter `before` of the next page.
    older: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Before {
    before: Option<i64>,
}

pub(crate) async fn list(
    State(console): State<Arc<Console>>,
    member: Member,
    Query(Before { before }): Query<Before>,
) -> Result<Response, Error> {
    let mut events = console.accounts().await?.audit_log(member.workspace(), before, EVENTS + 1).await?;
    let has_more = events.len() > EVENTS as usize;
    events.truncate(EVENTS as usize);
    let older = events.last().map(|event| event.number).filter(|_| has_more);
    let shell = Shell::of_user(&member.signed_in, "audit-log", None);
    Ok(page(&AuditLogPage {
        shell,
        base: member.path("audit-log"),
        events,
        is_first: before.is_none(),
        older,
    }))
}

/// Returns the text for an action of the audit log, or its name if a newer version has added it.
fn describe(action: &str) -> &str {
    match Action::named(action) {
        Some(action) => text(action),
        None => action,
    }
}

const fn text(action: Action) -> &'static str {
    match action {
        Action::WorkspaceCreated => "Created the workspace",
        Action::WorkspaceLimitChanged => "Changed the burst limit",
        Action::WorkspaceLowBalanceChanged => "Changed the low-balance warning",
        Action::WorkspaceRenamed => "Changed the display name",
        Action::WorkspaceSuspended => "Suspended the workspace",
        Action::WorkspaceResumed => "Resumed the workspace",
        Action::WorkspaceDeleted => "Deleted the workspace",
        Action::CreditsGranted => "Granted credits",
        Action::CreditsAdjusted => "Corrected the credits",
        Action::CreditsRefunded => "Refunded a lookup",
        Action::KeyCreated => "Created a key",
        Action::KeyRevoked => "Revoked a key",
        Action::KeyRotated => "Rotated a key",
        Action::KeyDisabled => "Disabled a key",
        Action::KeyEnabled => "Enabled a key",
        Action::MemberInvited => "Invited a member",
        Action::InvitationRevoked => "Withdrew an invitation",
        Action::MemberJoined => "Joined",
        Action::RoleChanged => "Changed a role",
        Action::MemberRemoved => "Removed a member",
        Action::SignedIn => "Signed in",
        Action::SessionsEnded => "Ended sessions",
        Action::AttemptFailed => "Wrong password or code",
        Action::AttemptsBlocked => "Blocked further attempts for some minutes",
        Action::RecoveryCodeUsed => "Used a recovery code",
        Action::UserReset => "Created a link for a new password",
        Action::PasswordChanged => "Changed the password",
        Action::TotpEnabled => "Turned on two-factor authentication",
        Action::TotpDisabled => "Turned off two-factor authentication",
    }
}
