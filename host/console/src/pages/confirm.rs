//! Entering the password again before a sensitive change.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use serde::Deserialize;

use crate::console::Console;
use crate::error::{Error, local_path};
use crate::extract::{Form, Query};
use crate::password;
use crate::session::{NewToken, SignedIn};
use crate::throttle::Attempt;
use crate::view::{Next, Shell, page, page_with};

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    shell: Shell,
    next: String,
    error: Option<&'static str>,
}

#[derive(Deserialize)]
pub(crate) struct Confirmation {
    password: String,
    next: Option<String>,
}

pub(crate) async fn show(signed_in: SignedIn, Query(next): Query<Next>) -> Response {
    let next = next.path().to_owned();
    page(&ConfirmPage { shell: Shell::of_user(&signed_in, "", None), next, error: None })
}

pub(crate) async fn submit(
    State(console): State<Arc<Console>>,
    attempt: Attempt,
    signed_in: SignedIn,
    Form(form): Form<Confirmation>,
) -> Result<Response, Error> {
    let next = local_path(form.next.as_deref()).to_owned();
    let user = &signed_in.user;
    if !password::verify(&console.hashes, &attempt, form.password, Some(user.password_hash.clone())).await {
        let actor = signed_in.actor(&console);
        console.accounts_to_change().await?.record_attempt(user.id, false, &actor).await?;
        let error = Some("The password is wrong.");
        let page = ConfirmPage { shell: Shell::of_user(&signed_in, "", None), next, error };
        return Ok(page_with(StatusCode::UNAUTHORIZED, &page));
    }
    let token = NewToken::of(&signed_in.session);
    console.accounts_to_change().await?.renew_session(&token.renewal, console.now()).await?;
    Ok((token.cookie(), Redirect::to(&next)).into_response())
}
