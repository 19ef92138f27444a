//! The user's own account: password, second factor and sessions.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use enrich_store::users::Session;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use crate::console::Console;
use crate::device;
use crate::error::Error;
use crate::extract::{Form, Path, Query};
use crate::password;
use crate::session::{NewToken, SignedIn, is_valid};
use crate::throttle::Attempt;
use crate::view::{Done, Moment as _, Shell, page, page_with};

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    shell: Shell,
    has_totp: bool,
    recovery_codes: u32,
    sessions: Vec<Session>,
    own: String,
    /// The error of the current password, and that of the new one.
    errors: [Option<String>; 2],
}

impl AccountPage {
    async fn load(console: &Console, signed_in: &SignedIn, done: Option<&str>) -> Result<Self, Error> {
        let now = console.now();
        let mut sessions = console.accounts().await?.sessions(signed_in.user.id).await?;
        sessions.retain(|session| is_valid(session, now));
        Ok(Self {
            shell: Shell::of_user(signed_in, "account", done),
            has_totp: signed_in.user.totp.is_some(),
            recovery_codes: signed_in.user.recovery_codes,
            sessions,
            own: signed_in.session.digest.id(),
            errors: [None, None],
        })
    }

    fn is_own(&self, session: &Session) -> bool {
        session.digest.id() == self.own
    }
}

pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    signed_in: SignedIn,
    Query(done): Query<Done>,
) -> Result<Response, Error> {
    Ok(page(&AccountPage::load(&console, &signed_in, done.done.as_deref()).await?))
}

#[derive(Deserialize)]
pub(crate) struct NewPassword {
    current: String,
    password: String,
    again: String,
}

pub(crate) async fn change_password(
    State(console): State<Arc<Console>>,
    attempt: Attempt,
    signed_in: SignedIn,
    headers: HeaderMap,
    Form(form): Form<NewPassword>,
) -> Result<Response, Error> {
    let user = &signed_in.user;
    let is_right =
        password::verify(&console.hashes, &attempt, form.current, Some(user.password_hash.clone())).await;
    if !is_right {
        let actor = signed_in.actor(&console);
        console.accounts_to_change().await?.record_attempt(user.id, false, &actor).await?;
    }
    let current = (!is_right).then(|| "The password is wrong.".to_owned());
    let new = password::check(
        &console.ratings,
        &attempt,
        &form.password,
        &form.again,
        &user.email,
        &user.workspace,
    )
    .await
    .err();
    if current.is_some() || new.is_some() {
        let account = AccountPage::load(&console, &signed_in, None).await?;
        let errors = [current, new.map(|error| error.to_string())];
        return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &AccountPage { errors, ..account }));
    }
    let hash = password::hash(&console.hashes, form.password).await;
    let (token, actor) = (NewToken::of(&signed_in.session), signed_in.actor(&console));
    console.accounts_to_change().await?.set_password(user.id, &hash, Some(&token.renewal), &actor).await?;
    let device = AppendHeaders([device::set(&headers, Some(user), &hash)]);
    Ok((token.cookie(), device, Redirect::to("/account?done=password-changed")).into_response())
}

pub(crate) async fn end_session(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    signed_in: SignedIn,
) -> Result<Response, Error> {
    // The session of the request may be the one that ends.
    let actor = console.actor(signed_in.user.email.as_str(), signed_in.client.address);
    match console.accounts_to_change().await?.end_session(signed_in.user.id, &id, &actor).await? {
        true => Ok(Redirect::to("/account?done=session-ended").into_response()),
        false => Ok(Redirect::to("/account?done=gone").into_response()),
    }
}

pub(crate) async fn end_other_sessions(
    State(console): State<Arc<Console>>,
    signed_in: SignedIn,
) -> Result<Response, Error> {
    let (keep, actor) = (&signed_in.session.digest, signed_in.actor(&console));
    console.accounts_to_change().await?.end_sessions(signed_in.user.id, Some(keep), &actor).await?;
    Ok(Redirect::to("/account?done=sessions-ended").into_response())
}
