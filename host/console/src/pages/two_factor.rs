//! Turning two-factor authentication on and off.

use std::sync::Arc;

use askama::Template;
use axum::Form;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use enrich_store::users::Totp;
use http::StatusCode;
use serde::Deserialize;

use crate::console::Console;
use crate::error::Error;
use crate::random::{recovery_codes, recovery_digest};
use crate::session::SignedIn;
use crate::totp;
use crate::view::{Shell, page, page_with};

#[derive(Template)]
#[template(path = "two_factor.html")]
struct SetupPage {
    shell: Shell,
    qr_code: String,
    secret: String,
    field: String,
    error: Option<&'static str>,
}

impl SetupPage {
    fn of(signed_in: &SignedIn, secret: &[u8], error: Option<&'static str>) -> Self {
        Self {
            shell: Shell::of_user(signed_in, "account", None),
            qr_code: totp::qr_code(secret, signed_in.user.email.as_str()),
            secret: totp::base32(secret),
            field: totp::to_field(secret),
            error,
        }
    }
}

#[derive(Template)]
#[template(path = "recovery_codes.html")]
struct RecoveryCodesPage {
    shell: Shell,
    codes: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct Setup {
    secret: String,
    code: String,
}

const PATH: &str = "/account/two-factor";

pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    signed_in: SignedIn,
) -> Result<Response, Error> {
    signed_in.require_recent(&console, PATH)?;
    Ok(page(&SetupPage::of(&signed_in, &totp::generate(), None)))
}

/// Turns it on once the app shows the right code, and shows the recovery codes once.
pub(crate) async fn enable(
    State(console): State<Arc<Console>>,
    signed_in: SignedIn,
    Form(form): Form<Setup>,
) -> Result<Response, Error> {
    signed_in.require_recent(&console, PATH)?;
    let secret = totp::from_field(&form.secret).ok_or(Error::BadRequest)?;
    let Some(last_step) = totp::step_of(&secret, &form.code, console.now()) else {
        let error = Some("The code is wrong. Check the time of your phone, and enter the current code.");
        return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &SetupPage::of(&signed_in, &secret, error)));
    };
    let codes = recovery_codes();
    let digests: Vec<_> = codes.iter().map(|code| recovery_digest(code)).collect();
    let (totp, keep) = (Totp { secret, last_step }, &signed_in.session.digest);
    let actor = signed_in.actor(&console);
    console.accounts().await?.set_totp(signed_in.user.id, Some(&totp), &digests, Some(keep), &actor).await?;
    Ok(page(&RecoveryCodesPage { shell: Shell::of_user(&signed_in, "account", None), codes }))
}

pub(crate) async fn disable(
    State(console): State<Arc<Console>>,
    signed_in: SignedIn,
) -> Result<Response, Error> {
    signed_in.require_recent(&console, "/account")?;
    let (keep, actor) = (&signed_in.session.digest, signed_in.actor(&console));
    console.accounts().await?.set_totp(signed_in.user.id, None, &[], Some(keep), &actor).await?;
    Ok(Redirect::to("/account?done=totp-disabled").into_response())
}
