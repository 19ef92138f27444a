//! Guards: what a request must fulfil before its handler runs.
//!
//! Each route has one guard, and handlers receive the user, the member or the counted attempt only from it. A
//! handler that takes more than its guard checks answers 404.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use enrich_lib::model::WorkspaceId;
use enrich_store::users::User;
use enrich_store::workspace::WorkspaceState;
use http::Method;
use http::request::Parts;

use crate::client::Client;
use crate::console::Console;
use crate::error::Error;
use crate::pending::{self, Pending};
use crate::session::{self, Member, SignedIn};
use crate::throttle::{self, Attempt};
use crate::{attempts, device};

/// Sensitive changes require that the user entered the password within this time.
const RECENT_MAX: Duration = Duration::from_secs(15 * 60);

/// The guard of a route. Changes of a workspace, and pages with forms for sensitive ones, also require that it
/// was not deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    access: Access,
    /// The page to return to after the user entered the password again, if it must have been entered
    /// recently. Its parameters are those of the route.
    recent: Option<&'static str>,
    is_attempt: bool,
    counter: Counter,
}

/// The counter of a request that sends a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    /// The changes of the user and of the role.
    User,
    /// The changes of the session, so that no other session of the user can use them up.
    Session,
    /// Changes nothing, or is limited as an attempt.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Anyone,
    Pending,
    User,
    Member,
    Admin,
}

/// Admits every request.
pub(crate) const ANYONE: Guard = Guard::new(Access::Anyone);

/// Requires the right password of a user of the workspace in the path, entered a few minutes ago, who has a
/// second factor.
pub(crate) const PENDING: Guard = Guard::new(Access::Pending);

/// Requires a session, and that a form was shown to its user.
pub(crate) const USER: Guard = Guard::new(Access::User);

/// Requires a session of a member of the workspace that the path names in any case. Workspaces of other users
/// do not exist for this user.
pub(crate) const MEMBER: Guard = Guard::new(Access::Member);

/// Requires a session of an admin of the workspace in the path.
pub(crate) const ADMIN: Guard = Guard::new(Access::Admin);

impl Guard {
    const fn new(access: Access) -> Self {
        Self { access, recent: None, is_attempt: false, counter: Counter::User }
    }

    /// Also requires that the user entered the password recently. Afterwards, the user returns to the page of
    /// the request, or to `page` if the request is a change, which is not made.
    pub(crate) const fn recent(self, page: &'static str) -> Self {
        Self { recent: Some(page), ..self }
    }

    /// Counts the request as an attempt to guess the password or a code of the user, instead of a change.
    pub(crate) const fn attempt(self) -> Self {
        Self { is_attempt: true, counter: Counter::None, ..self }
    }

    /// Counts the request for the session instead of the user: it only ends an access, which neither a stolen
    /// session nor a failure of the counters must prevent.
    pub(crate) const fn ending(self) -> Self {
        Self { counter: Counter::Session, ..self }
    }

    /// Does not count the request as a change.
    pub(crate) const fn uncounted(self) -> Self {
        Self { counter: Counter::None, ..self }
    }

    /// Checks a request before it reaches its handler.
    pub(crate) async fn check(self, console: Arc<Console>, request: Request, next: Next) -> Response {
        let (mut parts, body) = request.into_parts();
        match self.admit(&console, &mut parts).await {
            Ok(()) => next.run(Request::from_parts(parts, body)).await,
            Err(error) => error.into_response(),
        }
    }

    async fn admit(self, console: &Arc<Console>, parts: &mut Parts) -> Result<(), Error> {
        if self.access == Access::Anyone {
            return Ok(());
        }
        let params = RawPathParams::from_request_parts(parts, console).await.map_err(|_| Error::NotFound)?;
        let workspace: Option<WorkspaceId> =
            params.iter().find(|(name, _)| *name == "workspace").and_then(|(_, id)| id.parse().ok());
        if self.access == Access::Pending {
            return self.admit_pending(console, parts, workspace).await;
        }
        let signed_in = session::find(console, parts, workspace.as_ref()).await?;
        if parts.method == Method::POST {
            let is_account = self.access == Access::User && parts.uri.path() != "/sign-out";
            if is_account && !is_form_of(&signed_in.user, parts) {
                return Err(Error::BadRequest);
            }
            match self.counter {
                Counter::User => throttle::admit_change(console, &signed_in.user).await?,
                Counter::Session => count_end(console, &signed_in).await?,
                Counter::None => {}
            }
        }
        let member = match self.access {
            Access::Anyone | Access::Pending | Access::User => None,
            Access::Member | Access::Admin => {
                let is_change = parts.method == Method::POST || self.recent.is_some();
                Some(self.member(console, workspace, &signed_in, is_change).await?)
            }
        };
        if let Some(page) = self.recent
            && signed_in.session.authenticated_at + RECENT_MAX <= console.now()
        {
            let page = params
                .iter()
                .fold(page.to_owned(), |page, (name, value)| page.replace(&format!("{{{name}}}"), value));
            return Err(Error::Confirm(session::path(parts).unwrap_or(page)));
        }
        if self.is_attempt {
            let (user, address) = (&signed_in.user, signed_in.client.address);
            let admitted = throttle::admit_user(console, user).await;
            let author = user.email.as_str();
            let attempt = attempts::record_blocked(console, admitted, Some(user), author, address)?;
            parts.extensions.insert(attempt);
        }
        if let Some(member) = member {
            parts.extensions.insert(member);
        }
        parts.extensions.insert(signed_in);
        Ok(())
    }

    async fn admit_pending(
        self,
        console: &Arc<Console>,
        parts: &mut Parts,
        workspace: Option<WorkspaceId>,
    ) -> Result<(), Error> {
        let pending = pending::find(console, parts, workspace).await?;
        if self.is_attempt {
            let (Pending(user), client) = (&pending, Client::from_request_parts(parts, console).await?);
            let (headers, email) = (&parts.headers, user.email.as_str());
            let attempt =
                device::admit_sign_in(console, headers, client.address, &user.workspace, email, Some(user));
            let attempt = attempt.await?;
            parts.extensions.insert(attempt);
        }
        parts.extensions.insert(pending);
        Ok(())
    }

    async fn member(
        self,
        console: &Console,
        workspace: Option<WorkspaceId>,
        signed_in: &SignedIn,
        is_change: bool,
    ) -> Result<Member, Error> {
        let user = &signed_in.user;
        if workspace.is_none_or(|id| !id.as_str().eq_ignore_ascii_case(user.workspace.as_str())) {
            return Err(Error::OtherWorkspace);
        }
        let member = Member { signed_in: signed_in.clone() };
        if self.access == Access::Admin && !member.is_admin() {
            return Err(Error::AdminOnly(member.path("members")));
        }
        if is_change {
            let row = console.accounts().await?.workspace(member.workspace()).await?;
            if row.properties.state() == WorkspaceState::Deleted {
                return Err(Error::WorkspaceDeleted);
            }
        }
        Ok(member)
    }
}

/// Counts the end of an access. One that cannot be counted is admitted.
async fn count_end(console: &Console, signed_in: &SignedIn) -> Result<(), Error> {
    match throttle::admit_end(console, &signed_in.user, &signed_in.session).await {
        Err(Error::Unlimited(error)) => {
            tracing::error!(target: "enrich::console", %error, "cannot count the end of an access");
            Ok(())
        }
        counted => counted,
    }
}

/// Returns whether a form of an account was shown to this user. Another one may have signed in since then.
fn is_form_of(user: &User, parts: &Parts) -> bool {
    parts.uri.query().is_some_and(|query| query == format!("user={}", user.id.0))
}

/// Takes what the guard of the route has checked.
macro_rules! from_guard {
    ($type:ty) => {
        impl<S: Sync> FromRequestParts<S> for $type {
            type Rejection = Error;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
                parts.extensions.remove().ok_or(Error::NotFound)
            }
        }
    };
}

from_guard!(SignedIn);
from_guard!(Member);
from_guard!(Attempt);
from_guard!(Pending);
