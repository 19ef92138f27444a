//! The paths of the admin listener.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use enrich_lib::wire::OPENAPI;
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use hyper::{HeaderMap, StatusCode, Uri};
use serde_json::json;

use super::health::{Check, Health};
use super::node::Monitored;
use super::text_format::TextFormat;
use super::{COMMIT, VERSION, metrics};

/// Creates the service that answers all requests. axum answers other methods with 405.
pub fn router(node: Arc<Monitored>) -> Router {
    Router::new()
        .route("/livez", get(async || text(StatusCode::OK, "ok\n".to_owned())))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .route("/version", get(version))
        .route("/openapi.json", get(async || ([(CONTENT_TYPE, "application/json")], OPENAPI)))
        .fallback(async || text(StatusCode::NOT_FOUND, "not found\n".to_owned()))
        .with_state(Arc::new(Admin { health: Health::new(node.clone()), node }))
}

/// The state of the routes.
struct Admin {
    node: Arc<Monitored>,
    health: Health,
}

/// Answers `/readyz`. Lists all checks if one failed, or if the query is `verbose`.
async fn ready(State(admin): State<Arc<Admin>>, uri: Uri) -> Response {
    let checks = admin.health.checks().await;
    let is_ready = checks.iter().all(Check::is_ok);
    let is_verbose = uri.query().is_some_and(|query| query.split('&').any(|part| part == "verbose"));
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = String::new();
    if is_verbose || !is_ready {
        checks.iter().for_each(|check| body += &format!("{check}\n"));
    }
    body += if is_ready { "ok\n" } else { "not ready\n" };
    text(status, body)
}

async fn scrape(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>();
    let format = TextFormat::accepted(&accept.join(","));
    match metrics::scrape(&admin.node, &admin.health, format).await {
        Ok(metrics) => ([(CONTENT_TYPE, format.media_type())], metrics).into_response(),
        Err(error) => {
            text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot encode the metrics: {error}\n"))
        }
    }
}

async fn version() -> Response {
    let mut version = json!({ "version": VERSION });
    if let Some(commit) = COMMIT {
        version["commit"] = commit.into();
    }
    ([(CONTENT_TYPE, "application/json")], format!("{version}\n")).into_response()
}

fn text(status: StatusCode, body: String) -> Response {
    let headers = [(CONTENT_TYPE, "text/plain; charset=utf-8"), (CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}
