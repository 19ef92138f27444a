//! The audit log.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use enrich_store::users::AuditEvent;
use serde::Deserialize;

use crate::console::Console;
use crate::error::Error;
use crate::session::Member;
use crate::view::{Shell, Shown as _, page};

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
    let mut events = console.accounts().await?.audit_log(&member.workspace, before, EVENTS + 1).await?;
    let has_more = events.len() > EVENTS as usize;
    events.truncate(EVENTS as usize);
    let older = events.last().map(|event| event.number).filter(|_| has_more);
    let shell = Shell::of_workspace(&member, "audit-log", None);
    Ok(page(&AuditLogPage {
        shell,
        base: member.path("audit-log"),
        events,
        is_first: before.is_none(),
        older,
    }))
}

/// Returns the text for an action.
fn describe(action: &str) -> &str {
    match action {
        "workspace.created" => "Created the workspace",
        "workspace.limit_changed" => "Changed the burst limit",
        "workspace.low_balance_changed" => "Changed the low-balance warning",
        "workspace.renamed" => "Changed the display name",
        "workspace.suspended" => "Suspended the workspace",
        "workspace.resumed" => "Resumed the workspace",
        "workspace.deleted" => "Deleted the workspace",
        "credits.granted" => "Granted credits",
        "credits.adjusted" => "Corrected the credits",
        "credits.refunded" => "Refunded a lookup",
        "key.created" => "Created a key",
        "key.revoked" => "Revoked a key",
        "key.rotated" => "Rotated a key",
        "key.disabled" => "Disabled a key",
        "key.enabled" => "Enabled a key",
        "member.invited" => "Invited a member",
        "member.invitation_revoked" => "Withdrew an invitation",
        "member.joined" => "Joined",
        "member.role_changed" => "Changed a role",
        "member.removed" => "Removed a member",
        "user.signed_in" => "Signed in",
        "user.sessions_ended" => "Ended sessions",
        "user.attempt_failed" => "Wrong password or code",
        "user.recovery_code_used" => "Used a recovery code",
        "user.reset" => "Created a link for a new password",
        "user.password_changed" => "Changed the password",
        "user.totp_enabled" => "Turned on two-factor authentication",
        "user.totp_disabled" => "Turned off two-factor authentication",
        action => action,
    }
}
