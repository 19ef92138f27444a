//! One-time links: accepting an invitation, and setting a new password.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use enrich_store::users::{Link, LinkPurpose};
use enrich_store::workspace::WorkspaceState;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use crate::client::Client;
use crate::console::Console;
use crate::device;
use crate::error::Error;
use crate::extract::{Form, Path};
use crate::pages::sign_in;
use crate::password;
use crate::random::Token;
use crate::session;
use crate::throttle;
use crate::view::{page, page_with};

#[derive(Template)]
#[template(path = "link.html")]
struct LinkPage {
    link: Link,
    /// The URL of the workspace's sign-in page.
    sign_in: String,
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
        Some(link) => Ok(page(&form(&console, link, None))),
        None => Ok(ended()),
    }
}

pub(crate) async fn submit(
    State(console): State<Arc<Console>>,
    Path(token): Path<String>,
    client: Client,
    headers: HeaderMap,
    Form(new): Form<NewPassword>,
) -> Result<Response, Error> {
    let Some(link) = find(&console, &token).await? else { return Ok(ended()) };
    let attempt = throttle::admit_link(&console, &link.digest).await?;
    let checked =
        password::check(&console.ratings, &attempt, &new.password, &new.again, &link.email, &link.workspace)
            .await;
    if let Err(error) = checked {
        let page = form(&console, link, Some(error.to_string()));
        return Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    }
    let hash = password::hash(&console.hashes, new.password).await;
    let actor = console.actor(link.email.as_str(), client.address);
    if console.accounts_to_change().await?.use_link(&link.digest, &hash, &actor).await?.is_none() {
        return Ok(ended());
    }
    let sign_in = format!("{}?done=password-set", sign_in::path(&link.workspace));
    // Strangers must not keep out who has just set the password.
    let cookies = [session::workspace_cookie(&link.workspace), device::set(&headers, None, &hash)];
    Ok((AppendHeaders(cookies), Redirect::to(&sign_in)).into_response())
}

async fn find(console: &Console, token: &str) -> Result<Option<Link>, Error> {
    let Some(token) = Token::parse(token) else { return Ok(None) };
    let mut accounts = console.accounts().await?;
    let link = accounts.link(&token.digest(), console.now()).await?;
    if let Some(link) = &link
        && accounts.workspace(&link.workspace).await?.properties.state() == WorkspaceState::Deleted
    {
        return Err(Error::WorkspaceDeleted);
    }
    Ok(link)
}

fn form(console: &Console, link: Link, error: Option<String>) -> LinkPage {
    let sign_in = format!("{}{}", console.config.url, sign_in::path(&link.workspace));
    LinkPage { link, sign_in, error }
}

fn ended() -> Response {
    page_with(StatusCode::NOT_FOUND, &LinkEndedPage)
}
