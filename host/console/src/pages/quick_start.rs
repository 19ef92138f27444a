//! How to call the API, with examples, and a form that sends a test lookup.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use enrich_lib::drive::Service;
use enrich_lib::key::KeyId;
use enrich_lib::lookup::TEST_REPLIES;
use enrich_lib::memory::{AccountTable, Directory, KeyTable};
use enrich_lib::model::Arrival;
use enrich_lib::window::Workspace;
use enrich_lib::wire;
use enrich_store::StoreError;
use enrich_store::workspace::WorkspaceState;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::json;

use crate::console::Console;
use crate::error::Error;
use crate::extract::Form;
use crate::reference::{self, ErrorCode};
use crate::session::Member;
use crate::view::{Shell, page};

#[derive(Template)]
#[template(path = "quick_start.html")]
struct QuickStartPage {
    shell: Shell,
    base: String,
    keys: String,
    url: String,
    errors: &'static [ErrorCode],
    /// The address in the form.
    email: String,
    exchange: Option<Exchange>,
}

/// A test lookup that was sent.
struct Exchange {
    request: String,
    reply: String,
    delay_seconds: u64,
}

#[derive(Deserialize)]
pub(crate) struct TestForm {
    email: String,
}

pub(crate) async fn show(State(console): State<Arc<Console>>, member: Member) -> Response {
    shown(&console, &member, TEST_REPLIES[0].address(), None)
}

/// Sends a lookup as with a test key of the workspace, for the user and without a key.
pub(crate) async fn send(
    State(console): State<Arc<Console>>,
    member: Member,
    Form(TestForm { email }): Form<TestForm>,
) -> Result<Response, Error> {
    let mut accounts = console.accounts().await?;
    let session = accounts.session(&member.signed_in.session.digest).await?;
    let properties = accounts.workspace(member.workspace()).await?.properties;
    drop(accounts);
    // The session or the workspace can have ended while the form was received.
    session.ok_or(StoreError::NotAllowed)?;
    if properties.state() == WorkspaceState::Deleted {
        return Err(Error::WorkspaceDeleted);
    }
    let workspace = Workspace::new(member.workspace().clone(), properties.quota).with_test(true);
    let exchange = exchange(&console, workspace, &email).await;
    Ok(shown(&console, &member, email, Some(exchange)))
}

/// Runs a test lookup. It calls no port but the windows, so that the others are empty.
async fn exchange(console: &Console, workspace: Workspace, email: &str) -> Exchange {
    let (keys, windows) = (Arc::new(KeyTable::default()), console.config.windows.clone());
    let (credits, people) = (Arc::new(AccountTable::default()), Arc::new(Directory::default()));
    let service = Service::new(keys, windows, credits, people).for_workspace(workspace);
    let body = json!({ "email": email }).to_string();
    let request = format!(
        "POST {} HTTP/1.1\nauthorization: Bearer enr_test_…\ncontent-type: application/json\n\n{body}",
        wire::PATH
    );
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let lookup = wire::request(&headers, Ok(body.into())).authenticated(KeyId::from_number(0));
    let reply = service.answer(Arrival::new(console.now(), rand::random()), lookup).await;
    let response = wire::response(&reply);
    let mut text = format!("HTTP/1.1 {}\n", response.status());
    for (name, value) in response.headers() {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    text += &format!("\n{}", String::from_utf8_lossy(response.body()));
    Exchange { request, reply: text, delay_seconds: reply.delay.as_secs() }
}

fn shown(console: &Console, member: &Member, email: String, exchange: Option<Exchange>) -> Response {
    page(&QuickStartPage {
        shell: Shell::of_user(&member.signed_in, "quick-start", None),
        base: member.path("quick-start"),
        keys: member.path("keys"),
        url: format!("{}{}", console.config.api_url, wire::PATH),
        errors: reference::errors(),
        email,
        exchange,
    })
}
