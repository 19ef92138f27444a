//! Sessions, and the user behind a request.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts as _;
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::records::WorkspaceRow;
use enrich_store::users::{Renewal, Role, Session, User};
use enrich_store::{Actor, Authority, StoreError, TokenDigest};
use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use tokio::time::timeout;

use crate::client::Client;
use crate::console::Console;
use crate::cookies::{cookie, set_cookie};
use crate::device;
use crate::error::Error;
use crate::random::Token;

/// The names of the cookies. The prefix makes browsers require `Secure`, `Path=/` and no `Domain` (RFC
/// 6265bis, 4.1.3.2).
const SESSION_COOKIE: &str = "__Host-session";
const WORKSPACE_COOKIE: &str = "__Host-workspace";

/// How long a browser remembers the workspace whose sign-in page it opens.
const WORKSPACE_COOKIE_AGE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A session that is not used for this time ends.
const IDLE_MAX: Duration = Duration::from_secs(60 * 60);

/// A session ends after this time in any case.
const AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// The tolerated difference between the clocks of two nodes.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(5 * 60);

/// The last use of a session is written at most once in this time.
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum time that a page waits for this write.
const TOUCH_MAX: Duration = Duration::from_secs(2);

/// A signed-in user.
#[derive(Clone, Debug)]
pub(crate) struct SignedIn {
    pub(crate) user: User,
    pub(crate) session: Session,
    pub(crate) client: Client,
    /// The user's workspace, when the request arrived.
    pub(crate) workspace: WorkspaceRow,
}

impl SignedIn {
    /// Returns the author of this user's changes, which require the session.
    pub(crate) fn actor<'a>(&'a self, console: &Console) -> Actor<'a> {
        self.actor_as(false, console)
    }

    /// Returns the author of this user's changes, which require the session and, if `is_admin`, the role.
    pub(crate) fn actor_as<'a>(&'a self, is_admin: bool, console: &Console) -> Actor<'a> {
        let authority = Some(Authority { session: &self.session.digest, is_admin });
        Actor { authority, ..console.actor(self.user.email.as_str(), self.client.address) }
    }
}

/// Returns the user of the request's session.
///
/// Errors: [`Error::SignIn`], which returns to the page of this request.
pub(crate) async fn find(
    console: &Arc<Console>,
    parts: &mut Parts,
    workspace: Option<&WorkspaceId>,
) -> Result<SignedIn, Error> {
    let client = Client::from_request_parts(parts, console).await?;
    let done = match parts.uri.path() {
        _ if parts.method != Method::POST => None,
        "/sign-out" => Some("signed-out"),
        _ => Some("sign-in-again"),
    };
    let sign_in = || Error::SignIn { workspace: workspace.cloned(), next: path(parts), done };
    let digest = session_token(&parts.headers).ok_or_else(sign_in)?.digest();
    let mut accounts = console.accounts().await?;
    let now = console.now();
    let session = accounts.session(&digest).await?.filter(|session| is_valid(session, now));
    let session = session.ok_or_else(sign_in)?;
    let user = accounts.user(session.user).await?.ok_or_else(sign_in)?;
    let workspace = accounts.workspace(&user.workspace).await?;
    drop(accounts);
    if session.last_seen_at + TOUCH_INTERVAL <= now {
        // A store that cannot be written can still be read.
        match timeout(TOUCH_MAX, touch(console, &digest, now)).await {
            Ok(Ok(())) => {}
            failed => {
                tracing::warn!(target: "enrich::console", ?failed, "cannot record the use of a session")
            }
        }
    }
    Ok(SignedIn { user, session, client, workspace })
}

async fn touch(console: &Console, digest: &TokenDigest, now: Timestamp) -> Result<(), StoreError> {
    match console.accounts_unless_changes_wait().await? {
        Some(mut accounts) => accounts.touch_session(digest, now).await,
        None => Ok(()),
    }
}

/// Returns the path and query of the page to open after signing in, if the request can be repeated. A download would
/// leave the browser on the form, so that its page is opened instead.
pub(crate) fn path(parts: &Parts) -> Option<String> {
    let path = parts.uri.path_and_query().filter(|_| parts.method == Method::GET)?.as_str();
    Some(path.replace("/ledger.csv", "/usage").replace("/usage.csv", "/usage"))
}

/// A signed-in user in the workspace that the path names.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) signed_in: SignedIn,
}

impl Member {
    pub(crate) fn is_admin(&self) -> bool {
        self.signed_in.user.role == Role::Admin
    }

    pub(crate) fn workspace(&self) -> &WorkspaceId {
        &self.signed_in.user.workspace
    }

    pub(crate) fn email(&self) -> &str {
        self.signed_in.user.email.as_str()
    }

    /// Redirects to a page of the workspace after a change, whose notice it shows.
    pub(crate) fn redirect(&self, page: &str, done: &str) -> Response {
        Redirect::to(&format!("{}?done={done}", self.path(page))).into_response()
    }

    /// Returns the path of a page of the workspace.
    pub(crate) fn path(&self, page: &str) -> String {
        format!("/w/{}/{page}", self.workspace())
    }
}

/// Headers that set this number of cookies.
pub(crate) type Cookies<const N: usize> = AppendHeaders<[(HeaderName, HeaderValue); N]>;

/// Starts a session for `user`, and returns the cookies. Ends the session of the request, if it has one.
///
/// Returns `None` if the password or the second factor was changed since `user` was read: they were verified
/// with what was read.
pub(crate) async fn begin(
    console: &Console,
    user: &User,
    client: &Client,
    headers: &HeaderMap,
) -> Result<Option<Cookies<3>>, Error> {
    let (token, now) = (Token::generate(), console.now());
    let session = Session {
        digest: token.digest(),
        user: user.id,
        created_at: now,
        authenticated_at: now,
        last_seen_at: now,
        address: client.address,
        user_agent: client.user_agent.clone(),
    };
    let mut accounts = console.accounts_to_change().await?;
    let actor = console.actor(user.email.as_str(), client.address);
    if !accounts.begin_session(&session, user, now - AGE_MAX, &actor).await? {
        return Ok(None);
    }
    let before = session_token(headers).map(|token| token.digest());
    if let Some(before) = match before {
        Some(digest) => accounts.session(&digest).await?,
        None => None,
    } && let Some(owner) = accounts.user(before.user).await?
    {
        // The author is not the new user, who may belong to another workspace.
        let actor = console.actor(owner.email.as_str(), client.address);
        accounts.end_session(owner.id, &before.digest.id(), &actor).await?;
    }
    let device = device::set(headers, Some(user), &user.password_hash);
    Ok(Some(AppendHeaders([cookie_of(&token), workspace_cookie(&user.workspace), device])))
}

/// A new token for a session whose user entered the password or a code again (ASVS 5.0, 7.2.4).
pub(crate) struct NewToken {
    token: Token,
    pub(crate) renewal: Renewal,
}

impl NewToken {
    pub(crate) fn of(session: &Session) -> Self {
        let token = Token::generate();
        Self { renewal: Renewal { old: session.digest, new: token.digest() }, token }
    }

    /// Returns the cookie, to be sent after the renewal was committed.
    pub(crate) fn cookie(&self) -> Cookies<1> {
        AppendHeaders([cookie_of(&self.token)])
    }
}

fn cookie_of(token: &Token) -> (HeaderName, HeaderValue) {
    set_cookie(SESSION_COOKIE, token.reveal(), AGE_MAX)
}

/// Returns the headers that remove the session and its pages from the browser. The cookie of the workspace stays,
/// so that "cookies" is not cleared as a whole.
pub(crate) fn removal() -> [(HeaderName, HeaderValue); 2] {
    let clear =
        (HeaderName::from_static("clear-site-data"), HeaderValue::from_static("\"cache\", \"storage\""));
    [set_cookie(SESSION_COOKIE, "", Duration::ZERO), clear]
}

/// Returns the header that makes the browser remember the workspace whose sign-in page it opens.
pub(crate) fn workspace_cookie(workspace: &WorkspaceId) -> (HeaderName, HeaderValue) {
    set_cookie(WORKSPACE_COOKIE, workspace.as_str(), WORKSPACE_COOKIE_AGE)
}

/// Returns the workspace that the browser remembers.
pub(crate) fn remembered_workspace(headers: &HeaderMap) -> Option<WorkspaceId> {
    cookie(headers, WORKSPACE_COOKIE)?.parse().ok()
}

/// Returns whether a session can still be used. One that began or was used while the clock was ahead would otherwise
/// last too long.
pub(crate) fn is_valid(session: &Session, now: Timestamp) -> bool {
    let is_young = session.created_at + AGE_MAX > now;
    let is_in_use = session.last_seen_at + IDLE_MAX > now;
    let is_past = session.last_seen_at <= now + CLOCKS_DIFFER_MAX;
    is_young && is_in_use && is_past
}

fn session_token(headers: &HeaderMap) -> Option<Token> {
    Token::parse(cookie(headers, SESSION_COOKIE)?)
}
