//! Creating and rotating a key. The reply to the form is the only page that contains the key (specification
//! 5.4).

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::TEST_REPLIES;
use enrich_lib::model::Timestamp;
use enrich_lib::wire;
use enrich_store::records::NewKey;
use enrich_store::{StoreError, TokenDigest};
use http::StatusCode;
use serde::Deserialize;

use crate::console::Console;
use crate::error::Error;
use crate::extract::{Form, Path, Query};
use crate::pages::keys::{self, KeyView};
use crate::random::Token;
use crate::session::Member;
use crate::view::{Done, Moment as _, Shell, page, page_with};

const DAY: Duration = Duration::from_secs(86_400);

/// The lifetimes that the form offers, in days. An empty value never expires.
const LIFETIMES: [(&str, &str); 5] =
    [("", "Never"), ("30", "30 days"), ("90", "90 days"), ("180", "180 days"), ("365", "1 year")];

/// The grace periods that the form offers, in hours.
const GRACES: [(&str, &str); 5] = [
    ("24", "24 hours"),
    ("1", "1 hour"),
    ("168", "7 days"),
    ("720", "30 days"),
    ("0", "None, the old key ends now"),
];

#[derive(Template)]
#[template(path = "key_new.html")]
struct NewKeyPage {
    shell: Shell,
    base: String,
    form: Token,
    label: String,
    is_test: bool,
    lifetime: String,
    error: Option<&'static str>,
}

#[derive(Template)]
#[template(path = "key_rotate.html")]
struct RotatePage {
    shell: Shell,
    base: String,
    form: Token,
    key: KeyView,
}

#[derive(Template)]
#[template(path = "key_created.html")]
struct CreatedPage {
    shell: Shell,
    base: String,
    label: String,
    key: String,
    is_test: bool,
    quick_start: String,
    curl: String,
    expires_at: Option<Timestamp>,
    /// When the replaced key expires.
    old_expires_at: Option<Timestamp>,
    /// Whether it still works.
    has_grace: bool,
}

/// The kind of the key that is selected at first.
#[derive(Deserialize)]
pub(crate) struct Kind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
pub(crate) struct NewKeyForm {
    #[serde(default)]
    form: String,
    label: String,
    /// `test`, or empty for a live key.
    #[serde(default)]
    kind: String,
    #[serde(default)]
    lifetime: String,
}

#[derive(Deserialize)]
pub(crate) struct RotateForm {
    #[serde(default)]
    form: String,
    grace: String,
}

pub(crate) async fn show(member: Member, Query(kind): Query<Kind>, Query(done): Query<Done>) -> Response {
    let (base, is_test) = (member.path("keys"), kind.kind == "test");
    let (shell, form) = (Shell::of_user(&member.signed_in, "keys", done.done.as_deref()), Token::generate());
    let (label, lifetime) = (String::new(), String::new());
    page(&NewKeyPage { shell, base, form, label, is_test, lifetime, error: None })
}

pub(crate) async fn create(
    State(console): State<Arc<Console>>,
    member: Member,
    Form(form): Form<NewKeyForm>,
) -> Result<Response, Error> {
    let is_test = match form.kind.as_str() {
        "" => false,
        "test" => true,
        _ => return Err(Error::BadRequest),
    };
    let base = member.path("keys");
    let expires_at = lifetime(&form.lifetime, console.now())?;
    let Some(label) = enrich_store::records::label(&form.label) else {
        let shell = Shell::of_user(&member.signed_in, "keys", None);
        let error = Some("Enter a name of 1 to 100 visible characters, on one line.");
        let NewKeyForm { label, lifetime, .. } = form;
        let page = NewKeyPage { shell, base, form: Token::generate(), label, is_test, lifetime, error };
        return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    };
    let (key, number) = (generate(), form_number(&form.form)?);
    let key = if is_test { key.into_test() } else { key };
    let new = NewKey { expires_at, form: Some(&number), ..NewKey::new(member.workspace(), label, &key) };
    match console.accounts_to_change().await?.create_key(&new, &member.signed_in.actor(&console)).await {
        Err(StoreError::FormUsed) => Ok(member.redirect("keys", "key-exists")),
        created => {
            created?;
            Ok(shown(&console, &member, label, &key, [expires_at, None]))
        }
    }
}

pub(crate) async fn show_rotate(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, String)>,
    Query(done): Query<Done>,
    member: Member,
) -> Result<Response, Error> {
    let base = member.path("keys");
    let mut accounts = console.accounts().await?;
    let key = keys::find(&mut accounts, &member, &id, console.now()).await?;
    if !key.is_active() {
        return Err(Error::KeyEnded);
    }
    let (shell, form) = (Shell::of_user(&member.signed_in, "keys", done.done.as_deref()), Token::generate());
    Ok(page(&RotatePage { shell, base, form, key }))
}

pub(crate) async fn rotate(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, String)>,
    member: Member,
    Form(form): Form<RotateForm>,
) -> Result<Response, Error> {
    let hours =
        GRACES.iter().find(|(hours, _)| *hours == form.grace).and_then(|(hours, _)| hours.parse().ok());
    let hours: u64 = hours.ok_or(Error::BadRequest)?;
    let old_expires_at = console.now() + Duration::from_secs(hours * 3_600);
    let mut accounts = console.accounts_to_change().await?;
    let old = keys::find(&mut accounts, &member, &id, console.now()).await?;
    let (key, number, actor) = (generate(), form_number(&form.form)?, old.actor(&member, &console));
    match accounts.rotate_key(old.row.id, &key, Some(&number), old_expires_at, &actor).await {
        Err(StoreError::FormUsed) => Ok(member.redirect("keys", "key-exists")),
        rotated => {
            let key = rotated?;
            let expires_at =
                [old.row.initial_expires_at, Some(old.row.expiry_after_rotation(old_expires_at))];
            Ok(shown(&console, &member, &old.row.label, &key, expires_at))
        }
    }
}

fn lifetime(days: &str, now: Timestamp) -> Result<Option<Timestamp>, Error> {
    match LIFETIMES.iter().find(|(value, _)| *value == days) {
        Some(("", _)) => Ok(None),
        Some((days, _)) => {
            let days: u32 = days.parse().map_err(|_| Error::BadRequest)?;
            Ok(Some(now + DAY * days))
        }
        None => Err(Error::BadRequest),
    }
}

/// Generates a key from the system's random numbers.
fn generate() -> ApiKey {
    ApiKey::generate(rand::random)
}

/// Returns the digest of a form's number, which is stored with the key. A form that is sent again creates no
/// second key.
fn form_number(form: &str) -> Result<TokenDigest, Error> {
    Ok(Token::parse(form).ok_or(Error::BadRequest)?.digest())
}

/// Shows a new key, once, and when it and the replaced key expire.
fn shown(
    console: &Console,
    member: &Member,
    label: &str,
    key: &ApiKey,
    [expires_at, old_expires_at]: [Option<Timestamp>; 2],
) -> Response {
    let (url, path, key) = (&console.config.api_url, wire::PATH, key.reveal());
    let is_test = ApiKey::is_test(key);
    let email = if is_test { TEST_REPLIES[0].address() } else { "someone@gmail.com".to_owned() };
    let curl = format!(
        "curl {url}{path} \\\n  -H 'Authorization: Bearer {key}' \\\n  -H 'Content-Type: application/json' \\\n  \
         -d '{{\"email\":\"{email}\"}}'"
    );
    page(&CreatedPage {
        shell: Shell::of_user(&member.signed_in, "keys", None),
        base: member.path("keys"),
        label: label.to_owned(),
        key: key.to_owned(),
        is_test,
        quick_start: member.path("quick-start"),
        curl,
        expires_at,
        old_expires_at,
        has_grace: old_expires_at.is_some_and(|at| at > console.now()),
    })
}
