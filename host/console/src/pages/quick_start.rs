//! How to call the API, with examples.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use enrich_lib::wire;

use crate::console::Console;
use crate::reference::{self, ErrorCode};
use crate::session::Member;
use crate::view::{Shell, page};

#[derive(Template)]
#[template(path = "quick_start.html")]
struct QuickStartPage {
    shell: Shell,
    keys: String,
    url: String,
    errors: &'static [ErrorCode],
}

pub(crate) async fn show(State(console): State<Arc<Console>>, member: Member) -> Response {
    let url = format!("{}{}", console.config.api_url, wire::PATH);
    let shell = Shell::of_workspace(&member, "quick-start", None);
    page(&QuickStartPage { shell, keys: member.path("keys"), url, errors: reference::errors() })
}
