//! Errors as pages.

use askama::Template;
use axum::response::{Html, IntoResponse, Redirect, Response};
use enrich_lib::model::WorkspaceId;
use enrich_lib::refusal::PortError;
use enrich_store::StoreError;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::refusals::Refusal;

/// The reason why a request has no regular page.
#[derive(Debug)]
pub(crate) enum Error {
    /// The page does not exist, or the user may not know that it exists.
    NotFound,
    /// The path names a workspace that the user does not belong to. The page is that of [`Error::NotFound`].
    OtherWorkspace,
    /// The page takes no request with this method.
    WrongMethod,
    /// The form was not sent by this application's pages.
    BadRequest,
    /// A page of another site sent the form.
    OtherSite,
    /// The form is larger than those of this application.
    TooLarge,
    /// The workspace was deleted, so that it cannot be changed.
    WorkspaceDeleted,
    /// The key is disabled, has expired or was revoked.
    KeyEnded,
    /// Only admins may do this. The path of the list to go back to.
    AdminOnly(String),
    /// The session ended or the role changed while the request was in progress.
    NotAllowed,
    /// The user must sign in.
    SignIn {
        /// The workspace to sign in at, if the request names one.
        workspace: Option<WorkspaceId>,
        /// The path to continue with, if there is one.
        next: Option<String>,
        /// The notice about the request.
        done: Option<&'static str>,
    },
    /// The user must enter the password again. The path to continue with.
    Confirm(String),
    /// Too many sign-in attempts.
    TooManyAttempts {
        /// Seconds until the next attempt.
        retry_after: u64,
        /// Whether this is the first refused attempt for an account and window.
        is_first: bool,
    },
    /// Too many changes.
    TooManyChanges {
        /// Seconds until the next change.
        retry_after: u64,
    },
    /// The store has the maximum number of this.
    Full(&'static str),
    /// The attempts or changes cannot be counted.
    Unlimited(PortError),
    /// The accounts failed.
    Store(StoreError),
    /// The request took too long.
    TimedOut,
    /// The user signed out, and the store did not end the session.
    NotEnded,
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UnknownKey(_) | StoreError::UnknownUser | StoreError::UnknownWorkspace(_) => {
                Self::NotFound
            }
            StoreError::KeyEnded(_) => Self::KeyEnded,
            StoreError::WorkspaceDeleted(_) => Self::WorkspaceDeleted,
            StoreError::NotAllowed => Self::NotAllowed,
            StoreError::TooManyKeys(_) => {
                Self::Full("This workspace has 500 keys. Revoke one that you do not need.")
            }
            StoreError::TooManyUsers(_) => {
                Self::Full("This workspace has 500 members and invitations. Remove one that you do not need.")
            }
            error => Self::Store(error),
        }
    }
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    title: &'static str,
    text: &'static str,
    /// The address of its link.
    back: &'a str,
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, title, text) = match self {
            Self::SignIn { workspace, next, done } => {
                let page = workspace.map_or_else(|| "/sign-in".to_owned(), |id| format!("/w/{id}/sign-in"));
                return Redirect::to(&with_notice(&page, done, next.as_deref())).into_response();
            }
            Self::Confirm(next) => return Redirect::to(&with_next("/confirm", Some(&next))).into_response(),
            Self::NotFound | Self::OtherWorkspace => (
                StatusCode::NOT_FOUND,
                "Page not found",
                "It does not exist, or you have no access to it. Check the address, or go to your workspace.",
            ),
            Self::WrongMethod => (
                StatusCode::METHOD_NOT_ALLOWED,
                "Invalid request",
                "This page does not take such requests. Use the forms of this application.",
            ),
            Self::BadRequest => (
                StatusCode::BAD_REQUEST,
                "Invalid request",
                "The form is incomplete or outdated. Go back, reload the page and try again.",
            ),
            Self::OtherSite => (
                StatusCode::FORBIDDEN,
                "Form of another site",
                "Nothing was changed. Open this application in your browser, and use its own forms.",
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "Form too large",
                "Nothing was changed. Go back and enter shorter texts.",
            ),
            Self::KeyEnded => (
                StatusCode::CONFLICT,
                "Key not active",
                "It is disabled, has expired or was revoked. Go back to the list of keys to see its state.",
            ),
            Self::WorkspaceDeleted => (
                StatusCode::CONFLICT,
                "Workspace deleted",
                "This workspace was deleted. It can be read, but not changed. Ask your provider for another one.",
            ),
            Self::AdminOnly(_) => (
                StatusCode::FORBIDDEN,
                "Admins only",
                "Your role in this workspace does not allow this. Ask one of its admins.",
            ),
            Self::NotAllowed => (
                StatusCode::FORBIDDEN,
                "No longer allowed",
                "Your session has ended or your role has changed. An earlier request may have made this change.",
            ),
            Self::TooManyAttempts { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many attempts",
                "Attempts are blocked for up to a quarter of an hour to protect accounts. Try again later.",
            ),
            Self::TooManyChanges { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many changes",
                "Nothing was changed. Wait a minute, then try again.",
            ),
            Self::Full(text) => (StatusCode::CONFLICT, "Too many", text),
            Self::Unlimited(ref error) => {
                tracing::error!(target: "enrich::console", %error, "cannot count an attempt or a change");
                (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE, "Try again in a minute.")
            }
            Self::Store(ref error) => {
                tracing::error!(target: "enrich::console", %error, "the store failed");
                (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE, UNKNOWN)
            }
            Self::TimedOut => (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE, UNKNOWN),
            Self::NotEnded => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Signed out in this browser only",
                "The session may still be valid on the server. To end it before it expires, sign in later and end it on the page of your account.",
            ),
        };
        let back = match &self {
            Self::KeyEnded => "..", // as seen from the page of a key
            Self::AdminOnly(list) => list,
            _ => "/",
        };
        let page = ErrorPage { title, text, back }.render().unwrap_or_else(|_| title.to_owned());
        let mut response = (status, Html(page)).into_response();
        let retry_after = match self {
            Self::TooManyAttempts { retry_after, .. } | Self::TooManyChanges { retry_after } => {
                Some(retry_after)
            }
            Self::Unlimited(_) => Some(60),
            Self::Store(_) | Self::TimedOut => Some(10),
            _ => None,
        };
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(refusal) = self.refusal() {
            response.extensions_mut().insert(refusal);
        }
        response
    }
}

impl Error {
    /// Returns the kind of the refusal to log.
    const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::AdminOnly(_) => Some(Refusal::AdminsOnly),
            Self::OtherWorkspace => Some(Refusal::OtherWorkspace),
            Self::OtherSite => Some(Refusal::OtherSite),
            Self::TooManyAttempts { .. } => Some(Refusal::TooManyAttempts),
            Self::TooManyChanges { .. } => Some(Refusal::TooManyChanges),
            _ => None,
        }
    }
}

const UNAVAILABLE: &str = "Temporarily unavailable";
const UNKNOWN: &str = "Try again in a minute. If you sent a form, the change may have been made: check before you send it again.";

/// Returns the path of a sign-in page with a notice and the parameter `next`.
pub(crate) fn with_notice(path: &str, done: Option<&str>, next: Option<&str>) -> String {
    with_next(&done.map_or_else(|| path.to_owned(), |done| format!("{path}?done={done}")), next)
}

/// Returns a path with the parameter `next`, unless this is the start page.
pub(crate) fn with_next(path: &str, next: Option<&str>) -> String {
    let sign = if path.contains('?') { '&' } else { '?' };
    match next.filter(|next| *next != "/") {
        Some(next) => format!("{path}{sign}next={}", utf8_percent_encode(next, NON_ALPHANUMERIC)),
        None => path.to_owned(),
    }
}

/// Returns `next` if it is a path of this application, or else the start page.
pub(crate) fn local_path(next: Option<&str>) -> &str {
    let is_local = |path: &&str| {
        let path = path.as_bytes();
        path.starts_with(b"/")
            && !path.starts_with(b"//")
            && path.iter().all(|c| c.is_ascii_graphic() && !matches!(c, b'\\' | b'#'))
    };
    next.filter(is_local).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_only_to_local_paths() {
        assert_eq!(local_path(Some("/w/demo/keys?done=gone")), "/w/demo/keys?done=gone");
        for foreign in
            ["https://example.com", "//example.com", "/\\example.com", "javascript:x", "", "/a\nb", "/ä"]
        {
            assert_eq!(local_path(Some(foreign)), "/", "{foreign}");
        }
        assert_eq!(local_path(None), "/");
    }
}
