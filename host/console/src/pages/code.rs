//! The second step of a sign-in: the code of the second factor.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use enrich_lib::model::WorkspaceId;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use crate::attempts;
use crate::client::Client;
use crate::console::Console;
use crate::error::{Error, with_next};
use crate::extract::{Form, Query};
use crate::pages::sign_in::{code_path, has_second_factor, path};
use crate::pending::{self, Pending};
use crate::session;
use crate::throttle::Attempt;
use crate::view::{Next, page, page_with};

#[derive(Template)]
#[template(path = "code.html")]
struct CodePage {
    workspace: WorkspaceId,
    email: String,
    /// The path that the form is sent to.
    action: String,
    /// The path of the form for another user.
    change: String,
    error: Option<&'static str>,
}

impl CodePage {
    fn of(Pending(user): &Pending, next: &Next, error: Option<&'static str>) -> Self {
        let (workspace, email) = (user.workspace.clone(), user.email.as_str().to_owned());
        let change = with_next(&path(&workspace), Some(next.path()));
        Self { action: code_path(&workspace, next.path()), change, workspace, email, error }
    }
}

#[derive(Deserialize)]
pub(crate) struct Code {
    #[serde(default)]
    code: String,
}

const WRONG: &str =
    "The code is wrong or was used before. Enter the next code of your app, or a recovery code.";

pub(crate) async fn show(pending: Pending, Query(next): Query<Next>) -> Response {
    page(&CodePage::of(&pending, &next, None))
}

pub(crate) async fn submit(
    State(console): State<Arc<Console>>,
    Query(next): Query<Next>,
    attempt: Attempt,
    pending: Pending,
    client: Client,
    headers: HeaderMap,
    Form(form): Form<Code>,
) -> Result<Response, Error> {
    let Pending(user) = &pending;
    if !has_second_factor(&console, &attempt, user, &form.code, &client).await? {
        attempts::record_failed(&console, Some(user), client.address);
        return Ok(page_with(StatusCode::UNAUTHORIZED, &CodePage::of(&pending, &next, Some(WRONG))));
    }
    let cookies = session::begin(&console, user, &client, &headers).await?;
    let cookies = cookies.ok_or_else(|| pending::ended(user.workspace.clone(), &next))?;
    Ok((cookies, AppendHeaders([pending::removed_cookie()]), Redirect::to(next.path())).into_response())
}
