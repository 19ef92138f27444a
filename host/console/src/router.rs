//! Routes and layers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::handler::Handler;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use enrich_host::Sampler;
use http::header::CONTENT_TYPE;
use http::{Method, Uri};
use tokio::time::timeout;
use tower_http::csrf::CsrfLayer;

use crate::console::{Config, Console};
use crate::error::{Error, local_path};
use crate::guard::{ADMIN, ANYONE, Guard, MEMBER, PENDING, USER};
use crate::headers;
use crate::pages::{
    account, audit_log, code, confirm, keys, links, members, new_key, quick_start, reference, sign_in,
    two_factor, usage,
};
use crate::view::list_of;

/// The maximum size of a form, in bytes.
const FORM_BYTES_MAX: usize = 16 * 1_024;

/// The maximum time of a request.
const REQUEST_MAX: Duration = Duration::from_secs(20);

/// Creates the service that answers all requests.
pub fn router(config: Config) -> Router {
    // A proxy may replace the host, with which browsers' origins are compared otherwise.
    let csrf = CsrfLayer::new().add_trusted_origin(&config.url).unwrap_or_default();
    let console = Arc::new(Console::new(config));
    let Routes { router, .. } = all();
    router
        .fallback(without_slash)
        .method_not_allowed_fallback(page_of_form)
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(csrf.with_rejection_response(|_| Error::OtherSite.into_response()))
        .layer(middleware::from_fn_with_state(Arc::<Sampler>::default(), with_timeout))
        .layer(middleware::from_fn(sign_in::sign_out_of_browser))
        .layer(middleware::from_fn_with_state(console.clone(), headers::add))
        .layer(Extension(console.clone()))
        .with_state(console)
}

/// Returns the method and the path of each route, for tests.
#[doc(hidden)]
pub fn routes() -> Vec<(Method, &'static str)> {
    all().list
}

/// All routes with their guards.
fn all() -> Routes {
    Routes::default()
        .get("/", USER, sign_in::start)
        .get("/sign-in", ANYONE, sign_in::find)
        .get("/w/{workspace}/sign-in", ANYONE, sign_in::show)
        .post("/w/{workspace}/sign-in", ANYONE, sign_in::submit)
        .get("/w/{workspace}/sign-in/code", PENDING, code::show)
        .post("/w/{workspace}/sign-in/code", PENDING.attempt(), code::submit)
        .post("/sign-out", USER.uncounted(), sign_in::sign_out)
        .get("/confirm", USER, confirm::show)
        .post("/confirm", USER.attempt(), confirm::submit)
        .get("/join/{token}", ANYONE, links::show)
        .post("/join/{token}", ANYONE, links::submit)
        .get("/reset/{token}", ANYONE, links::show)
        .post("/reset/{token}", ANYONE, links::submit)
        .get("/account", USER, account::show)
        .post("/account/password", USER.attempt(), account::change_password)
        .post("/account/sessions/end-others", USER.ending(), account::end_other_sessions)
        .post("/account/sessions/{id}/end", USER.ending(), account::end_session)
        .get("/account/two-factor", USER.recent("/account"), two_factor::show)
        .post(
            "/account/two-factor",
            USER.recent("/account/two-factor?done=setup-expired").attempt(),
            two_factor::enable,
        )
        .get("/account/two-factor/disable", USER.recent("/account"), two_factor::confirm_disable)
        .post(
            "/account/two-factor/disable",
            USER.recent("/account/two-factor/disable?done=not-changed").attempt(),
            two_factor::disable,
        )
        .get("/w/{workspace}", MEMBER, sign_in::start)
        .get("/w/{workspace}/keys", MEMBER, keys::list)
        .post(
            "/w/{workspace}/keys",
            MEMBER.recent("/w/{workspace}/keys/new?done=not-changed"),
            new_key::create,
        )
        .get("/w/{workspace}/keys/new", MEMBER.recent("/w/{workspace}/keys"), new_key::show)
        .get("/w/{workspace}/keys/{id}/revoke", MEMBER, keys::confirm_revoke)
        .post("/w/{workspace}/keys/{id}/revoke", MEMBER.ending(), keys::revoke)
        .get("/w/{workspace}/keys/{id}/rotate", MEMBER.recent("/w/{workspace}/keys"), new_key::show_rotate)
        .post(
            "/w/{workspace}/keys/{id}/rotate",
            MEMBER.recent("/w/{workspace}/keys/{id}/rotate?done=not-changed"),
            new_key::rotate,
        )
        .post("/w/{workspace}/keys/{id}/disable", MEMBER.ending(), keys::set_enabled::<false>)
        .post("/w/{workspace}/keys/{id}/enable", MEMBER, keys::set_enabled::<true>)
        .get("/w/{workspace}/usage", MEMBER, usage::show)
        .get("/w/{workspace}/usage.csv", MEMBER, usage::usage_csv)
        .get("/w/{workspace}/ledger.csv", MEMBER, usage::ledger_csv)
        .get("/w/{workspace}/members", MEMBER, members::list)
        .post(
            "/w/{workspace}/members",
            ADMIN.recent("/w/{workspace}/members/invite?done=not-changed"),
            members::invite,
        )
        .get("/w/{workspace}/members/invite", ADMIN.recent("/w/{workspace}/members"), members::show_invite)
        .post("/w/{workspace}/members/invitations/{id}/delete", ADMIN, members::delete_invitation)
        .get(
            "/w/{workspace}/members/{user}/remove",
            ADMIN.recent("/w/{workspace}/members"),
            members::confirm_remove,
        )
        .post(
            "/w/{workspace}/members/{user}/remove",
            ADMIN.recent("/w/{workspace}/members?done=not-changed"),
            members::remove,
        )
        .get(
            "/w/{workspace}/members/{user}/role",
            ADMIN.recent("/w/{workspace}/members"),
            members::confirm_role,
        )
        .post(
            "/w/{workspace}/members/{user}/role",
            ADMIN.recent("/w/{workspace}/members?done=not-changed"),
            members::set_role,
        )
        .get("/w/{workspace}/audit-log", MEMBER, audit_log::list)
        .get("/w/{workspace}/quick-start", MEMBER, quick_start::show)
        .post("/w/{workspace}/quick-start", MEMBER.uncounted(), quick_start::send)
        .get("/reference", ANYONE, reference::start)
        .get("/reference/{*path}", ANYONE, reference::show)
        .get("/favicon.svg", ANYONE, icon)
}

/// The state of handlers.
type Shared = Arc<Console>;

/// Routes, and the list of their methods and paths. A route cannot be added without a guard.
#[derive(Default)]
struct Routes {
    router: Router<Shared>,
    list: Vec<(Method, &'static str)>,
}

impl Routes {
    fn get<T: 'static>(self, path: &'static str, guard: Guard, handler: impl Handler<T, Shared>) -> Self {
        self.add(Method::GET, path, guard, get(handler))
    }

    fn post<T: 'static>(self, path: &'static str, guard: Guard, handler: impl Handler<T, Shared>) -> Self {
        self.add(Method::POST, path, guard, post(handler))
    }

    fn add(
        mut self,
        method: Method,
        path: &'static str,
        guard: Guard,
        handler: MethodRouter<Shared>,
    ) -> Self {
        self.list.push((method, path));
        let check = move |Extension(console): Extension<Shared>, request: Request, next: Next| {
            guard.check(console, request, next)
        };
        self.router = self.router.route(path, handler.route_layer(middleware::from_fn(check)));
        self
    }
}

/// Redirects a path that ends with a slash to the page without it.
async fn without_slash(method: Method, uri: Uri) -> Result<Redirect, Error> {
    let path = uri.path().strip_suffix('/').filter(|_| method == Method::GET).ok_or(Error::NotFound)?;
    Ok(Redirect::to(local_path(Some(path))))
}

/// Redirects from the address of a form to the page with the list that it changes.
async fn page_of_form(method: Method, uri: Uri) -> Result<Redirect, Error> {
    if method != Method::GET {
        return Err(Error::WrongMethod);
    }
    Ok(Redirect::to(list_of(uri.path())))
}

async fn icon() -> Response {
    ([(CONTENT_TYPE, "image/svg+xml")], include_str!("../assets/favicon.svg")).into_response()
}

async fn with_timeout(State(slow): State<Arc<Sampler>>, request: Request, next: Next) -> Response {
    let (method, route) = (request.method().clone(), request.extensions().get::<MatchedPath>().cloned());
    let answered = timeout(REQUEST_MAX, next.run(request)).await;
    answered.unwrap_or_else(|_| {
        let route = route.as_ref().map(MatchedPath::as_str);
        let further = |count| {
            tracing::warn!(target: "enrich::console", count, "further pages took longer than 20 s");
        };
        // The request may also have come slowly.
        if slow.admits(further) {
            tracing::warn!(target: "enrich::console", %method, route, "a page took longer than 20 s");
        }
        Error::TimedOut.into_response()
    })
}
