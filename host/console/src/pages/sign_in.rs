//! Signing in and out, and the start page.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::middleware;
use axum::response::{IntoResponse, Redirect, Response};
use enrich_lib::model::WorkspaceId;
use enrich_store::users::{User, UserEmail};
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;

use crate::client::Client;
use crate::console::Console;
use crate::error::{Error, local_path, with_next, with_notice};
use crate::extract::{Form, Path, Query};
use crate::random::recovery_digest;
use crate::session::{self, SignedIn};
use crate::throttle::Attempt;
use crate::view::{Notice, notice, page, page_with};
use crate::{attempts, device, password, pending, totp};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    workspace: WorkspaceId,
    email: String,
    next: String,
    notice: Option<Notice>,
    error: Option<&'static str>,
}

/// The form for the name of a workspace.
#[derive(Template)]
#[template(path = "workspace.html")]
struct WorkspacePage {
    workspace: String,
    next: String,
    notice: Option<Notice>,
    error: Option<&'static str>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Next {
    workspace: Option<String>,
    next: Option<String>,
    done: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Credentials {
    email: String,
    password: String,
    next: Option<String>,
}

/// The same text for an unknown workspace, an unknown user and a wrong password.
const WRONG: &str = "Email or password is wrong.";

/// Redirects to the sign-in page of a workspace: the one in the form, or else the one that the browser
/// remembers.
pub(crate) async fn find(headers: HeaderMap, Query(query): Query<Next>) -> Response {
    let workspace = match &query.workspace {
        Some(name) => name.trim().parse().ok(),
        None => session::remembered_workspace(&headers),
    };
    if let Some(workspace) = workspace {
        let done = query.done.as_deref().filter(|done| notice(done).is_some());
        return Redirect::to(&with_notice(&path(&workspace), done, query.next.as_deref())).into_response();
    }
    let notice = query.done.as_deref().and_then(notice);
    let (workspace, next) =
        (query.workspace.unwrap_or_default(), local_path(query.next.as_deref()).to_owned());
    let error = (!workspace.is_empty()).then_some("No workspace can have this name.");
    let status = if error.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    page_with(status, &WorkspacePage { workspace, next, notice, error })
}

/// Returns the path of the sign-in page of a workspace.
pub(crate) fn path(workspace: &WorkspaceId) -> String {
    format!("/w/{workspace}/sign-in")
}

/// Returns the path of the page that asks for the code, which then redirects to `next`.
pub(crate) fn code_path(workspace: &WorkspaceId, next: &str) -> String {
    with_next(&format!("{}/code", path(workspace)), Some(next))
}

pub(crate) async fn show(
    Path(workspace): Path<String>,
    Query(query): Query<Next>,
) -> Result<Response, Error> {
    let workspace = workspace.parse().map_err(|_| Error::NotFound)?;
    let next = local_path(query.next.as_deref()).to_owned();
    let notice = query.done.as_deref().and_then(notice);
    Ok(page(&SignInPage { workspace, email: String::new(), next, notice, error: None }))
}

pub(crate) async fn submit(
    State(console): State<Arc<Console>>,
    Path(workspace): Path<String>,
    client: Client,
    headers: HeaderMap,
    Form(form): Form<Credentials>,
) -> Result<Response, Error> {
    let workspace: WorkspaceId = workspace.parse().map_err(|_| Error::NotFound)?;
    let next = local_path(form.next.as_deref()).to_owned();
    let user = authenticate(&console, &workspace, &form, &client, &headers).await?;
    if let Some(user) = user {
        if let Some(cookie) = pending::set(&user, console.now()) {
            return Ok(([cookie], Redirect::to(&code_path(&user.workspace, &next))).into_response());
        }
        if let Some(cookies) = session::begin(&console, &user, &client, &headers).await? {
            return Ok((cookies, Redirect::to(&next)).into_response());
        }
    }
    let page = SignInPage { workspace, email: form.email, next, notice: None, error: Some(WRONG) };
    Ok(page_with(StatusCode::UNAUTHORIZED, &page))
}

/// Returns the user if the password is right. Takes the same time for an unknown workspace, an unknown user
/// and a wrong password.
async fn authenticate(
    console: &Arc<Console>,
    workspace: &WorkspaceId,
    form: &Credentials,
    client: &Client,
    headers: &HeaderMap,
) -> Result<Option<User>, Error> {
    let email = form.email.parse::<UserEmail>();
    let user = match &email {
        Ok(email) => console.accounts().await?.user_by_email(workspace, email).await?,
        Err(_) => None,
    };
    let email = email.as_ref().map_or(&*form.email, UserEmail::as_str);
    let attempt =
        device::admit_sign_in(console, headers, client.address, workspace, email, user.as_ref()).await?;
    let hash = user.as_ref().map(|user| user.password_hash.clone());
    if password::verify(&console.hashes, &attempt, form.password.clone(), hash).await {
        return Ok(user);
    }
    attempts::record_failed(console, user.as_ref(), client.address);
    Ok(None)
}

/// Checks the code of the second factor and uses it up. Without a second factor, any code is right.
pub(crate) async fn has_second_factor(
    console: &Console,
    _: &Attempt,
    user: &User,
    code: &str,
    client: &Client,
) -> Result<bool, Error> {
    let Some(totp) = &user.totp else { return Ok(true) };
    let mut accounts = console.accounts_to_change().await?;
    match totp::step_of(&totp.secret, code, console.now()) {
        Some(step) => Ok(accounts.use_totp_step(user, step).await?),
        None => {
            let actor = console.actor(user.email.as_str(), client.address);
            Ok(accounts.use_recovery_code(user, &recovery_digest(code), &actor).await?)
        }
    }
}

pub(crate) async fn sign_out(
    State(console): State<Arc<Console>>,
    signed_in: SignedIn,
) -> Result<Response, Error> {
    let (user, id) = (&signed_in.user, signed_in.session.digest.id());
    let actor = console.actor(user.email.as_str(), signed_in.client.address);
    console.accounts_to_change().await?.end_session(user.id, &id, &actor).await?;
    let page = format!("{}?done=signed-out", path(&signed_in.user.workspace));
    Ok((session::removal(), Redirect::to(&page)).into_response())
}

/// Removes the session from the browser also if the store does not answer.
pub(crate) async fn sign_out_of_browser(request: Request, next: middleware::Next) -> Response {
    let is_sign_out = request.method() == Method::POST && request.uri().path() == "/sign-out";
    let response = next.run(request).await;
    if is_sign_out && response.status() == StatusCode::SERVICE_UNAVAILABLE {
        return (session::removal(), Error::NotEnded).into_response();
    }
    response
}

/// Redirects to the first page of the user's workspace.
pub(crate) async fn start(signed_in: SignedIn) -> Redirect {
    Redirect::to(&format!("/w/{}/keys", signed_in.user.workspace))
}
