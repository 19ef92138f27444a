//! The parts of all pages: the navigation, times and numbers.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::grouped;
use enrich_store::records::WorkspaceRow;
use enrich_store::usage::Day;
use enrich_store::workspace::WorkspaceState;
use http::StatusCode;

use crate::error::local_path;
use crate::session::SignedIn;

/// The frame of a page for a signed-in user.
#[derive(Debug)]
pub(crate) struct Shell {
    /// The number of the user, which the forms of the account send.
    pub(crate) user: i64,
    pub(crate) email: String,
    pub(crate) workspace: WorkspaceId,
    /// The display name of the workspace, or its name.
    pub(crate) workspace_name: String,
    /// The current section, as in its path.
    pub(crate) section: &'static str,
    /// The result of the change that led to this page.
    pub(crate) notice: Option<Notice>,
    /// The credits left, if they are few.
    pub(crate) few_credits: Option<String>,
    /// The text about a workspace whose keys are refused.
    pub(crate) standing: Option<&'static str>,
    /// Whether the workspace was deleted, so that its pages have no forms.
    pub(crate) is_deleted: bool,
}

impl Shell {
    pub(crate) fn of_user(signed_in: &SignedIn, section: &'static str, done: Option<&str>) -> Self {
        let (user, display_name) = (&signed_in.user, &signed_in.workspace.properties.display_name);
        Self {
            user: user.id.0,
            email: user.email.as_str().to_owned(),
            workspace: user.workspace.clone(),
            workspace_name: display_name.clone().unwrap_or_else(|| user.workspace.to_string()),
            section,
            notice: done.and_then(notice),
            few_credits: few_credits(&signed_in.workspace).map(grouped),
            standing: standing(signed_in.workspace.properties.state()),
            is_deleted: signed_in.workspace.properties.state() == WorkspaceState::Deleted,
        }
    }

    pub(crate) fn is_section(&self, section: &str) -> bool {
        self.section == section
    }
}

/// Returns the credits left, at or below the low balance of the workspace. A low balance of 0 is none.
pub(crate) fn few_credits(row: &WorkspaceRow) -> Option<u64> {
    let (left, low) = (row.balance.available, row.properties.low_balance);
    (low > 0 && left <= low).then_some(left)
}

/// Returns the text about a workspace whose keys are refused.
fn standing(state: WorkspaceState) -> Option<&'static str> {
    match state {
        WorkspaceState::Active => None,
        WorkspaceState::Suspended => Some(
            "This workspace is suspended. Requests with its keys get 401 until your provider resumes it.",
        ),
        WorkspaceState::Deleted => {
            Some("This workspace was deleted. It cannot be changed, and requests with its keys get 401.")
        }
    }
}

/// The query of a page after a change.
#[derive(Debug, Default, serde::Deserialize)]
pub(crate) struct Done {
    pub(crate) done: Option<String>,
}

/// The page to open after a form.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Next {
    next: Option<String>,
}

impl Next {
    pub(crate) fn path(&self) -> &str {
        local_path(self.next.as_deref())
    }
}

/// Returns the path of the page with the list that a form changes, from the path of the form.
pub(crate) fn list_of(path: &str) -> &str {
    let path = path.split('?').next().unwrap_or_default();
    let (parts, whole) = if path.starts_with("/w/") { (3, path) } else { (1, "/") };
    path.match_indices('/').nth(parts).map_or(whole, |(end, _)| &path[..end])
}

/// The number of rows on a page.
pub(crate) const ROWS: u32 = 50;

/// The parameter `page`, which counts from 0.
#[derive(Debug, Default, serde::Deserialize)]
pub(crate) struct PageNumber {
    #[serde(default)]
    pub(crate) page: u32,
}

/// The links between the pages of a list.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) number: u32,
    pub(crate) newer: Option<u32>,
    pub(crate) older: Option<u32>,
    /// Whether the list ends before this page.
    pub(crate) is_past_end: bool,
}

impl PageNumber {
    /// Returns the number of rows on the pages before this one.
    pub(crate) fn offset(&self) -> u32 {
        self.page.saturating_mul(ROWS)
    }

    /// Returns the path of this page of a list after a change.
    pub(crate) fn path_after(&self, list: &str, done: &str) -> String {
        match self.page {
            0 => format!("{list}?done={done}"),
            page => format!("{list}?page={page}&done={done}"),
        }
    }

    /// Removes the row after this page, which shows that there is another page.
    pub(crate) fn cut<T>(&self, rows: &mut Vec<T>) -> Pages {
        let older = (rows.len() > ROWS as usize).then(|| self.page.saturating_add(1));
        rows.truncate(ROWS as usize);
        let is_past_end = self.page > 0 && rows.is_empty();
        let newer = if is_past_end { Some(0) } else { self.page.checked_sub(1) };
        Pages { number: self.page, newer, older, is_past_end }
    }
}

/// A text about the result of a form, and the class of its paragraph.
pub(crate) type Notice = (&'static str, &'static str);

/// Returns the notice for the parameter `done`. The text of a notice never comes from the URL.
pub(crate) fn notice(done: &str) -> Option<Notice> {
    let text = match done {
        "key-exists" => {
            "This form was sent before and created a key then. If you did not copy it, revoke it. To create another one, open the form again."
        }
        "key-revoked" => "The key is revoked. Requests with it get 401 within a second.",
        "key-disabled" => "The key is disabled. Requests with it get 401 until you enable it.",
        "key-enabled" => "The key is enabled.",
        "invitation-deleted" => "The invitation is withdrawn. Its link no longer works.",
        "left" => "You have left the workspace. The keys that you created are unchanged.",
        "member-removed" => "The member is removed. Their keys are unchanged; revoke those you do not need.",
        "role-changed" => {
            "The role is changed. If the user was an admin, the open invitations of the user are withdrawn."
        }
        "password-changed" => "Your password is changed, and your other sessions are ended.",
        "setup-expired" => {
            "The setup took too long, so there is another QR code. Delete the entry of the first one in your app, and scan this one."
        }
        "totp-disabled" => "Two-factor authentication is off.",
        "session-ended" => "The session is ended.",
        "sessions-ended" => "All other sessions are ended.",
        "gone" => "Nothing was changed: it was used, withdrawn, removed or ended meanwhile.",
        "not-changed" => {
            "Your password is confirmed. Nothing was changed yet: do it again, and check every field of the form."
        }
        "sign-in-again" => {
            "Your session has ended, so this request was not made. An earlier one may have made the change: sign in and look, before you do it again."
        }
        "totp-exists" => {
            "This app is set up already. Its recovery codes are shown only once; set it up again to get others."
        }
        "signed-out" => "You are signed out.",
        "password-first" => "Enter your password first. The code can then be entered for 5 minutes.",
        "password-set" => "Your password is set. Sign in with it.",
        _ => return None,
    };
    let class = match done {
        "key-exists" | "totp-exists" | "setup-expired" | "gone" | "not-changed" | "sign-in-again"
        | "password-first" => "warning",
        _ => "notice",
    };
    Some((class, text))
}

/// A time on a page. The script shows it in the reader's time zone.
pub(crate) trait Moment {
    /// Returns the time for the attribute `datetime` (RFC 3339).
    fn iso(&self) -> String;
    /// Returns the time for readers, in UTC.
    fn utc(&self) -> String;
}

impl Moment for Timestamp {
    fn iso(&self) -> String {
        format(*self, "%Y-%m-%dT%H:%M:%SZ")
    }

    fn utc(&self) -> String {
        format(*self, "%Y-%m-%d %H:%M UTC")
    }
}

fn format(time: Timestamp, format: &str) -> String {
    let ms = i64::try_from(time.unix_ms()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    time.strftime(format).to_string()
}

/// Returns the ISO 8601 date of a day.
pub(crate) fn date(day: Day) -> String {
    format(day.starts_at(), "%Y-%m-%d")
}

/// Returns the month and day, such as `Nov 22`.
pub(crate) fn short_date(day: Day) -> String {
    format(day.starts_at(), "%b %-d")
}

/// Renders a page.
pub(crate) fn page(template: &impl Template) -> Response {
    page_with(StatusCode::OK, template)
}

/// Renders a page with a status.
pub(crate) fn page_with(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(page) => (status, Html(page)).into_response(),
        Err(error) => {
            tracing::error!(target: "enrich::console", %error, "cannot render a page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_page_has_a_next_one_only_if_there_are_more_rows() {
        for (rows, is_last) in [(0, true), (ROWS - 1, true), (ROWS, true), (ROWS + 1, false)] {
            let mut rows: Vec<_> = (0..rows).collect();
            let pages = PageNumber { page: 3 }.cut(&mut rows);
            assert!(rows.len() <= ROWS as usize);
            let newer = if rows.is_empty() { 0 } else { 2 };
            assert_eq!((pages.newer, pages.older), (Some(newer), (!is_last).then_some(4)));
        }
        assert_eq!(PageNumber { page: 0 }.cut(&mut vec![0]).newer, None);
    }

    #[test]
    fn notice_that_a_path_names_has_a_text() {
        let sources = [
            include_str!("error.rs"),
            include_str!("pages/account.rs"),
            include_str!("pages/links.rs"),
            include_str!("pages/sign_in.rs"),
            include_str!("pages/two_factor.rs"),
            include_str!("router.rs"),
        ];
        let named: Vec<_> = sources.iter().flat_map(|source| source.split("?done=").skip(1)).collect();
        assert!(named.len() > 10);
        for rest in named {
            let name = rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap();
            assert!(name.is_empty() || notice(name).is_some(), "{name}");
        }
    }

    #[test]
    fn formats_times_in_utc() {
        let moment = Timestamp::from_unix_ms(1_700_000_000_000);
        assert_eq!(moment.iso(), "2023-11-14T22:13:20Z");
        assert_eq!(moment.utc(), "2023-11-14 22:13 UTC");
        assert_eq!(date(Day::from_timestamp(moment)), "2023-11-14");
    }
}
