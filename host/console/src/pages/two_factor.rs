//! Turning two-factor authentication on and off. Once it is on, both require a code of the current
//! authenticator app, or a recovery code (ASVS 5.0, 7.5.1).

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use enrich_store::users::Totp;
use http::StatusCode;
use serde::Deserialize;

use crate::console::Console;
use crate::error::Error;
use crate::extract::{Form, Query};
use crate::pages::sign_in::has_second_factor;
use crate::random::{recovery_codes, recovery_digest};
use crate::session::{NewToken, SignedIn};
use crate::throttle::Attempt;
use crate::totp;
use crate::view::{Done, Shell, page, page_with};

#[derive(Template)]
#[template(path = "two_factor.html")]
struct SetupPage {
    shell: Shell,
    qr_code: String,
    secret: String,
    field: String,
    /// Whether this replaces another authenticator app.
    is_replaced: bool,
    /// The error of the current code, and that of the new one.
    errors: [Option<&'static str>; 2],
}

impl SetupPage {
    fn of(
        signed_in: &SignedIn,
        done: Option<&str>,
        secret: &[u8],
        errors: [Option<&'static str>; 2],
    ) -> Self {
        Self {
            shell: Shell::of_user(signed_in, "account", done),
            qr_code: totp::qr_code(secret, &signed_in.user),
            secret: totp::base32(secret),
            field: totp::to_field(secret),
            is_replaced: signed_in.user.totp.is_some(),
            errors,
        }
    }
}

#[derive(Template)]
#[template(path = "two_factor_disable.html")]
struct DisablePage {
    shell: Shell,
    error: Option<&'static str>,
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
    #[serde(default)]
    current: String,
}

#[derive(Deserialize)]
pub(crate) struct Current {
    #[serde(default)]
    current: String,
}

const WRONG_CURRENT: &str =
    "The code is wrong or was used before. Enter the next code of your current app, or a recovery code.";

const WRONG_NEW: &str = "The code is wrong. Check the time of your phone, and enter the current code for this \
                         QR code. An entry of the app for an earlier QR code does not work.";

pub(crate) async fn show(signed_in: SignedIn, Query(done): Query<Done>) -> Response {
    page(&SetupPage::of(&signed_in, done.done.as_deref(), &totp::generate(), [None, None]))
}

/// Turns it on once the app shows the right code, and shows the recovery codes once.
pub(crate) async fn enable(
    State(console): State<Arc<Console>>,
    attempt: Attempt,
    signed_in: SignedIn,
    Form(form): Form<Setup>,
) -> Result<Response, Error> {
    let secret = totp::from_field(&form.secret).ok_or(Error::BadRequest)?;
    // The page with the recovery codes was reloaded.
    if signed_in.user.totp.as_ref().is_some_and(|totp| totp.secret == secret) {
        return Ok(Redirect::to("/account?done=totp-exists").into_response());
    }
    let refused = |errors| {
        let page = SetupPage::of(&signed_in, None, &secret, errors);
        Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
    };
    let Some(last_step) = totp::step_of(&secret, &form.code, console.now()) else {
        return refused([None, Some(WRONG_NEW)]);
    };
    if !is_current(&console, &attempt, &signed_in, &form.current).await? {
        return refused([Some(WRONG_CURRENT), None]);
    }
    let codes = recovery_codes();
    let digests: Vec<_> = codes.iter().map(|code| recovery_digest(code)).collect();
    let (totp, token) = (Totp { secret, last_step }, NewToken::of(&signed_in.session));
    let (user, actor) = (signed_in.user.id, signed_in.actor(&console));
    console
        .accounts_to_change()
        .await?
        .set_totp(user, Some(&totp), &digests, Some(&token.renewal), &actor)
        .await?;
    let page = page(&RecoveryCodesPage { shell: Shell::of_user(&signed_in, "account", None), codes });
    Ok((token.cookie(), page).into_response())
}

pub(crate) async fn confirm_disable(signed_in: SignedIn, Query(done): Query<Done>) -> Response {
    page(&DisablePage { shell: Shell::of_user(&signed_in, "account", done.done.as_deref()), error: None })
}

pub(crate) async fn disable(
    State(console): State<Arc<Console>>,
    attempt: Attempt,
    signed_in: SignedIn,
    Form(form): Form<Current>,
) -> Result<Response, Error> {
    if !is_current(&console, &attempt, &signed_in, &form.current).await? {
        let (shell, error) = (Shell::of_user(&signed_in, "account", None), Some(WRONG_CURRENT));
        return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &DisablePage { shell, error }));
    }
    let (user, actor) = (signed_in.user.id, signed_in.actor(&console));
    let token = NewToken::of(&signed_in.session);
    console.accounts_to_change().await?.set_totp(user, None, &[], Some(&token.renewal), &actor).await?;
    Ok((token.cookie(), Redirect::to("/account?done=totp-disabled")).into_response())
}

/// Checks and uses up a code of the current second factor, if there is one, and records a wrong one.
async fn is_current(
    console: &Console,
    attempt: &Attempt,
    signed_in: &SignedIn,
    code: &str,
) -> Result<bool, Error> {
    let user = &signed_in.user;
    let is_right = has_second_factor(console, attempt, user, code, &signed_in.client).await?;
    if !is_right {
        console.accounts_to_change().await?.record_attempt(user.id, false, &signed_in.actor(console)).await?;
    }
    Ok(is_right)
}
