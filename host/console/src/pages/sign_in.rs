//! Signing in and out, and the start page.

use std::sync::Arc;

use askama::Template;
use axum::Form;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use enrich_store::users::{User, UserEmail};
use http::header::{HeaderName, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;

use crate::console::Console;
use crate::error::{Error, local_path};
use crate::random::recovery_digest;
use crate::session::{self, Client, SignedIn};
use crate::view::{Shell, notice, page, page_with};
use crate::{password, throttle, totp};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    email: String,
    next: String,
    notice: Option<&'static str>,
    error: Option<&'static str>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Next {
    next: Option<String>,
    done: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Credentials {
    email: String,
    password: String,
    #[serde(default)]
    code: String,
    next: Option<String>,
}

/// The same text for an unknown user, a wrong password and a wrong code.
const WRONG: &str = "Email, password or code is wrong.";

pub(crate) async fn show(Query(query): Query<Next>) -> Response {
    let next = local_path(query.next.as_deref()).to_owned();
    let notice = query.done.as_deref().and_then(notice);
    page(&SignInPage { email: String::new(), next, notice, error: None })
}

pub(crate) async fn submit(
    State(console): State<Arc<Console>>,
    client: Client,
    headers: HeaderMap,
    Form(form): Form<Credentials>,
) -> Result<Response, Error> {
    let next = local_path(form.next.as_deref()).to_owned();
    let Some(user) = authenticate(&console, &form, &client).await? else {
        let error = Some(WRONG);
        let page = SignInPage { email: form.email, next, notice: None, error };
        return Ok(page_with(StatusCode::UNAUTHORIZED, &page));
    };
    let cookie = session::begin(&console, &user, &client, &headers).await?;
    Ok(([(SET_COOKIE, cookie)], Redirect::to(&next)).into_response())
}

/// Returns the user if all factors are right. Takes the same time for an unknown user as for a wrong password.
async fn authenticate(console: &Console, form: &Credentials, client: &Client) -> Result<Option<User>, Error> {
    let account = form.email.trim().to_lowercase();
    throttle::admit(console, &account, client.address).await?;
    let user = match form.email.parse::<UserEmail>() {
        Ok(email) => console.accounts().await?.user_by_email(&email).await?,
        Err(_) => None,
    };
    let hash = user.as_ref().map(|user| user.password_hash.clone());
    if !password::verify(form.password.clone(), hash).await {
        return Ok(None);
    }
    match user {
        Some(user) if has_second_factor(console, &user, &form.code).await? => Ok(Some(user)),
        _ => Ok(None),
    }
}

/// Checks the code of the second factor and uses it up. Without a second factor, any code is right.
pub(crate) async fn has_second_factor(console: &Console, user: &User, code: &str) -> Result<bool, Error> {
    let Some(totp) = &user.totp else { return Ok(true) };
    let mut accounts = console.accounts().await?;
    match totp::step_of(&totp.secret, code, console.now()) {
        Some(step) => Ok(accounts.use_totp_step(user.id, step).await?),
        None => Ok(accounts.use_recovery_code(user.id, &recovery_digest(code)).await?),
    }
}

pub(crate) async fn sign_out(
    State(console): State<Arc<Console>>,
    signed_in: SignedIn,
) -> Result<Response, Error> {
    let id = signed_in.session.digest.id();
    console.accounts().await?.end_session(signed_in.user.id, &id).await?;
    let headers = [
        (SET_COOKIE, session::removed_cookie()),
        (
            HeaderName::from_static("clear-site-data"),
            HeaderValue::from_static("\"cache\", \"cookies\", \"storage\""),
        ),
    ];
    Ok((headers, Redirect::to("/sign-in?done=signed-out")).into_response())
}

#[derive(Template)]
#[template(path = "no_workspace.html")]
struct NoWorkspacePage {
    shell: Shell,
}

/// Redirects to the user's first workspace.
pub(crate) async fn start(signed_in: SignedIn) -> Response {
    match signed_in.user.memberships.first() {
        Some((workspace, _)) => Redirect::to(&format!("/w/{workspace}/keys")).into_response(),
        None => page(&NoWorkspacePage { shell: Shell::of_user(&signed_in, "", None) }),
    }
}
