//! The list of keys, and changes of a key.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use enrich_lib::key::KeyId;
use enrich_lib::model::Timestamp;
use enrich_store::records::{KeyRow, KeyState};
use enrich_store::usage::Day;
use enrich_store::{Accounts, Actor, grouped};

use crate::console::Console;
use crate::error::Error;
use crate::extract::{Path, Query};
use crate::session::Member;
use crate::view::{Done, Moment as _, PageNumber, Pages, ROWS, Shell, page};

/// A key in the list.
pub(crate) struct KeyView {
    pub(crate) row: KeyRow,
    pub(crate) state: KeyState,
    /// Whether the user may change it.
    pub(crate) is_own: bool,
    /// Whether the user may enable it.
    pub(crate) can_enable: bool,
    /// Whether the user may disable it.
    pub(crate) can_disable: bool,
}

impl KeyView {
    fn of(row: KeyRow, member: &Member, now: Timestamp) -> Self {
        let is_own = member.is_admin() || row.created_by == member.email();
        let can_enable = member.is_admin() || row.can_be_enabled_by(member.email());
        let can_disable = row.can_be_disabled_by(member.email());
        Self { state: row.state(now), is_own, can_enable, can_disable, row }
    }

    /// Returns the author of a change of this key.
    pub(crate) fn actor<'a>(&self, member: &'a Member, console: &Console) -> Actor<'a> {
        member.signed_in.actor_as(self.row.created_by != member.email(), console)
    }

    pub(crate) fn uses(&self) -> String {
        grouped(self.row.uses)
    }

    pub(crate) fn is_active(&self) -> bool {
        self.state == KeyState::Active
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.state == KeyState::Disabled
    }

    /// Returns whether it has expired or was revoked.
    pub(crate) fn has_ended(&self) -> bool {
        !self.is_active() && !self.is_disabled()
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.state == KeyState::Revoked
    }
}

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    shell: Shell,
    base: String,
    keys: Vec<KeyView>,
    /// Keys that have expired or were revoked.
    ended: Vec<KeyView>,
    pages: Pages,
}

pub(crate) async fn list(
    State(console): State<Arc<Console>>,
    member: Member,
    Query(done): Query<Done>,
    Query(number): Query<PageNumber>,
) -> Result<Response, Error> {
    let now = console.now();
    let mut accounts = console.accounts().await?;
    let mut rows = accounts.key_page(member.workspace(), now, number.offset(), ROWS + 1).await?;
    drop(accounts);
    let pages = number.cut(&mut rows);
    let views = rows.into_iter().map(|row| KeyView::of(row, &member, now));
    let (ended, keys) = views.partition(KeyView::has_ended);
    let shell = Shell::of_user(&member.signed_in, "keys", done.done.as_deref());
    Ok(page(&KeysPage { shell, base: member.path("keys"), keys, ended, pages }))
}

#[derive(Template)]
#[template(path = "key_revoke.html")]
struct RevokePage {
    shell: Shell,
    base: String,
    key: KeyView,
    /// The page of the list.
    page: u32,
}

pub(crate) async fn confirm_revoke(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, String)>,
    Query(number): Query<PageNumber>,
    member: Member,
) -> Result<Response, Error> {
    let mut accounts = console.accounts().await?;
    let key = find(&mut accounts, &member, &id, console.now()).await?;
    if key.has_ended() {
        return Err(Error::KeyEnded);
    }
    let shell = Shell::of_user(&member.signed_in, "keys", None);
    Ok(page(&RevokePage { shell, base: member.path("keys"), key, page: number.page }))
}

pub(crate) async fn revoke(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, String)>,
    Query(number): Query<PageNumber>,
    member: Member,
) -> Result<Response, Error> {
    let mut accounts = console.accounts_to_change().await?;
    let key = find(&mut accounts, &member, &id, console.now()).await?;
    accounts.revoke_key(key.row.id, &key.actor(&member, &console)).await?;
    Ok(Redirect::to(&number.path_after(&member.path("keys"), "key-revoked")).into_response())
}

/// Enables or disables a key.
pub(crate) async fn set_enabled<const IS_ENABLED: bool>(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, String)>,
    Query(number): Query<PageNumber>,
    member: Member,
) -> Result<Response, Error> {
    let mut accounts = console.accounts_to_change().await?;
    let key = find(&mut accounts, &member, &id, console.now()).await?;
    if IS_ENABLED && !key.can_enable {
        return Err(Error::AdminOnly(member.path("keys")));
    }
    accounts.set_key_enabled(key.row.id, IS_ENABLED, &key.actor(&member, &console)).await?;
    let done = if IS_ENABLED { "key-enabled" } else { "key-disabled" };
    Ok(Redirect::to(&number.path_after(&member.path("keys"), done)).into_response())
}

/// Returns a key of the workspace that the user may change.
pub(crate) async fn find(
    accounts: &mut Accounts,
    member: &Member,
    id: &str,
    now: Timestamp,
) -> Result<KeyView, Error> {
    let id: KeyId = id.parse().map_err(|_| Error::NotFound)?;
    let key = KeyView::of(accounts.key(member.workspace(), id, Day::from_timestamp(now)).await?, member, now);
    if key.is_own { Ok(key) } else { Err(Error::AdminOnly(member.path("keys"))) }
}
