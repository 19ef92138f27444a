//! Paths and layers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::CONTENT_TYPE;
use tokio::time::timeout;
use tower_http::csrf::CsrfLayer;

use crate::console::{Config, Console};
use crate::error::Error;
use crate::headers;
use crate::pages::{
    account, audit_log, confirm, keys, links, members, new_key, quick_start, reference, sign_in, two_factor,
    usage,
};

/// The maximum size of a form, in bytes.
const FORM_BYTES_MAX: usize = 16 * 1_024;

/// The maximum time of a request.
const REQUEST_MAX: Duration = Duration::from_secs(20);

/// Creates the service that answers all requests.
pub fn router(config: Config) -> Router {
    let console = Arc::new(Console::new(config));
    Router::new()
        .route("/", get(sign_in::start))
        .route("/sign-in", get(sign_in::find))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/confirm", get(confirm::show).post(confirm::submit))
        .route("/join/{token}", get(links::show).post(links::submit))
        .route("/reset/{token}", get(links::show).post(links::submit))
        .route("/account", get(account::show))
        .route("/account/password", post(account::change_password))
        .route("/account/sessions/end-others", post(account::end_other_sessions))
        .route("/account/sessions/{id}/end", post(account::end_session))
        .route("/account/two-factor", get(two_factor::show).post(two_factor::enable))
        .route("/account/two-factor/disable", get(two_factor::confirm_disable).post(two_factor::disable))
        .nest("/w/{workspace}", workspace())
        .route("/reference", get(reference::start))
        .route("/reference/{*path}", get(reference::show))
        .route("/favicon.svg", get(icon))
        .fallback(async || Error::NotFound)
        .method_not_allowed_fallback(async || Error::NotFound)
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .layer(CsrfLayer::new())
        .layer(middleware::from_fn(with_timeout))
        .layer(middleware::from_fn_with_state(console.clone(), headers::add))
        .with_state(console)
}

/// The pages of a workspace.
fn workspace() -> Router<Arc<Console>> {
    Router::new()
        .route("/sign-in", get(sign_in::show).post(sign_in::submit))
        .route("/keys", get(keys::list).post(new_key::create))
        .route("/keys/new", get(new_key::show))
        .route("/keys/{id}/revoke", get(keys::confirm_revoke).post(keys::revoke))
        .route("/keys/{id}/rotate", get(new_key::show_rotate).post(new_key::rotate))
        .route("/keys/{id}/disable", post(keys::disable))
        .route("/keys/{id}/enable", post(keys::enable))
        .route("/usage", get(usage::show))
        .route("/usage.csv", get(usage::usage_csv))
        .route("/ledger.csv", get(usage::ledger_csv))
        .route("/members", get(members::list).post(members::invite))
        .route("/members/invitations/{id}/delete", post(members::delete_invitation))
        .route("/members/{user}/remove", get(members::confirm_remove).post(members::remove))
        .route("/members/{user}/role", post(members::set_role))
        .route("/audit-log", get(audit_log::list))
        .route("/quick-start", get(quick_start::show))
}

async fn icon() -> Response {
    ([(CONTENT_TYPE, "image/svg+xml")], include_str!("../assets/favicon.svg")).into_response()
}

async fn with_timeout(request: Request, next: Next) -> Response {
    let answered = timeout(REQUEST_MAX, next.run(request)).await;
    answered.unwrap_or_else(|_| http::StatusCode::SERVICE_UNAVAILABLE.into_response())
}
