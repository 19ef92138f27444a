//! One-time links: accepting an invitation, and setting a new password.

use std::sync::Arc;

use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use enrich_lib::model::WorkspaceId;
use enrich_store::users::{Link, LinkPurpose};
use http::StatusCode;
use serde::Deserialize;

use crate::console::Console;
use crate::error::Error;
use crate::password;
use crate::random::Token;
use crate::session::Client;
use crate::view::{page, page_with};

#[derive(Template)]
#[template(path = "link.html")]
struct LinkPage {
    email: String,
    /// The workspace of an invitation.
    workspace: Option<WorkspaceId>,
    /// Whether the user has a password already and keeps it.
    has_password: bool,
    error: Option<String>,
}

#[derive(Template)]
#[template(path = "link_ended.html")]
struct LinkEndedPage;

#[derive(Deserialize)]
pub(crate) struct NewPassword {
    #[serde(default)]
    password: String,
    #[serde(default)]
    again: String,
}

/// Shows the form. The link stays valid, because programs that check links in messages may request it.
pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    Path(token): Path<String>,
) -> Result<Response, Error> {
    match find(&console, &token).await? {
        Some((_, link, has_password)) => Ok(page(&form(&link, has_password, None))),
        None => Ok(ended()),
    }
}

pub(crate) async fn submit(
    State(console): State<Arc<Console>>,
    Path(token): Path<String>,
    client: Client,
    Form(new): Form<NewPassword>,
) -> Result<Response, Error> {
    let Some((token, link, has_password)) = find(&console, &token).await? else { return Ok(ended()) };
    let hash = if has_password {
        String::new() // the user keeps the password
    } else {
        if let Err(error) = password::check(&new.password, &new.again, link.email.as_str()) {
            let page = form(&link, has_password, Some(error.to_string()));
            return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
        }
        password::hash(new.password).await
    };
    let actor = console.actor(link.email.as_str(), client.address);
    let used = console.accounts().await?.use_link(&token.digest(), &hash, &actor).await?;
    if used.is_none() {
        return Ok(ended());
    }
    let done = if has_password { "joined" } else { "password-set" };
    Ok(Redirect::to(&format!("/sign-in?done={done}")).into_response())
}

/// Returns the link, and whether its user keeps a password.
async fn find(console: &Console, token: &str) -> Result<Option<(Token, Link, bool)>, Error> {
    let Some(token) = Token::parse(token) else { return Ok(None) };
    let mut accounts = console.accounts().await?;
    let Some(link) = accounts.link(&token.digest(), console.now()).await? else { return Ok(None) };
    let is_join = matches!(link.purpose, LinkPurpose::Join { .. });
    let has_password = is_join && accounts.user_by_email(&link.email).await?.is_some();
    Ok(Some((token, link, has_password)))
}

fn form(link: &Link, has_password: bool, error: Option<String>) -> LinkPage {
    let workspace = match &link.purpose {
        LinkPurpose::Join { workspace, .. } => Some(workspace.clone()),
        LinkPurpose::Reset => None,
    };
    LinkPage { email: link.email.as_str().to_owned(), workspace, has_password, error }
}

fn ended() -> Response {
    page_with(StatusCode::NOT_FOUND, &LinkEndedPage)
}
