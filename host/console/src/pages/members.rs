//! Members and invitations.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use enrich_store::StoreError;
use enrich_store::users::{Link, LinkPurpose, Role, User, UserEmail, UserId};
use http::StatusCode;
use serde::Deserialize;

use crate::console::Console;
use crate::error::Error;
use crate::extract::{Form, Path, Query};
use crate::random::Token;
use crate::session::Member;
use crate::view::{Done, Moment as _, PageNumber, Pages, Shell, page, page_with};

#[derive(Template)]
#[template(path = "members.html")]
struct MembersPage {
    shell: Shell,
    base: String,
    /// Whether the user may change members and invitations.
    can_change: bool,
    own: UserId,
    /// The URL of the workspace's sign-in page.
    sign_in: String,
    members: Vec<User>,
    pages: Pages,
    /// The open invitations, on the first page.
    invitations: Vec<Link>,
    /// The link of an invitation that was just created, and its email.
    link: Option<(String, String)>,
}

impl MembersPage {
    async fn load(
        console: &Console,
        member: &Member,
        done: Option<&str>,
        number: PageNumber,
    ) -> Result<Self, Error> {
        let mut accounts = console.accounts().await?;
        let mut members = accounts.users(Some(member.workspace())).await?;
        members.drain(..members.len().min(number.offset() as usize));
        let pages = number.cut(&mut members);
        let invitations = match pages.newer {
            None => accounts.invitations(Some(member.workspace()), console.now()).await?,
            Some(_) => Vec::new(),
        };
        let shell = Shell::of_user(&member.signed_in, "members", done);
        let can_change = member.is_admin() && !shell.is_deleted;
        Ok(Self {
            shell,
            base: member.path("members"),
            can_change,
            own: member.signed_in.user.id,
            sign_in: format!("{}{}", console.config.url, member.path("sign-in")),
            members,
            pages,
            invitations,
            link: None,
        })
    }

    fn role_of(link: &Link) -> &'static str {
        match &link.purpose {
            LinkPurpose::Join(role) => role.as_str(),
            LinkPurpose::Reset => "",
        }
    }
}

pub(crate) async fn list(
    State(console): State<Arc<Console>>,
    member: Member,
    Query(done): Query<Done>,
    Query(number): Query<PageNumber>,
) -> Result<Response, Error> {
    Ok(page(&MembersPage::load(&console, &member, done.done.as_deref(), number).await?))
}

#[derive(Template)]
#[template(path = "member_invite.html")]
struct InvitePage {
    shell: Shell,
    base: String,
    form: Token,
    email: String,
    role: Role,
    /// The error of the email.
    error: Option<String>,
}

impl InvitePage {
    fn of(member: &Member, done: Option<&str>, email: String, role: Role, error: Option<String>) -> Self {
        let shell = Shell::of_user(&member.signed_in, "members", done);
        Self { shell, base: member.path("members"), form: Token::generate(), email, role, error }
    }
}

pub(crate) async fn show_invite(member: Member, Query(done): Query<Done>) -> Response {
    page(&InvitePage::of(&member, done.done.as_deref(), String::new(), Role::Member, None))
}

#[derive(Deserialize)]
pub(crate) struct Invitation {
    #[serde(default)]
    form: String,
    email: String,
    role: String,
}

/// Creates an invitation and shows its link once.
pub(crate) async fn invite(
    State(console): State<Arc<Console>>,
    member: Member,
    Form(form): Form<Invitation>,
) -> Result<Response, Error> {
    let role: Role = form.role.parse().map_err(|_| Error::BadRequest)?;
    let created = match form.email.parse() {
        Ok(email) => {
            let number = Token::parse(&form.form).ok_or(Error::BadRequest)?;
            create_invitation(&console, &member, &number, email, role).await?
        }
        Err(error) => Err(format!("This is not an email address: {error}.")),
    };
    match created {
        Ok(link) => {
            let members = MembersPage::load(&console, &member, None, PageNumber::default()).await?;
            Ok(page(&MembersPage { link: Some((link, form.email)), ..members }))
        }
        Err(error) => {
            let page = InvitePage::of(&member, None, form.email, role, Some(error));
            Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
    }
}

/// Returns the link, or an error for the form. A form that is sent again does not replace the link, which the user
/// may have sent to the new member.
async fn create_invitation(
    console: &Console,
    member: &Member,
    number: &Token,
    email: UserEmail,
    role: Role,
) -> Result<Result<String, String>, Error> {
    let token = number.of_invitation(member.workspace(), &email, role);
    let actor = member.signed_in.actor_as(true, console);
    let url = format!("{}/join/{}", console.config.url, token.reveal());
    if console.accounts().await?.link(&token.digest(), actor.now).await?.is_some() {
        return Ok(Ok(url));
    }
    let link = token.link(member.workspace().clone(), LinkPurpose::Join(role), email, &actor);
    match console.accounts_to_change().await?.create_link(&link, &actor).await {
        Ok(()) => Ok(Ok(url)),
        Err(StoreError::AlreadyMember(_)) => Ok(Err("This user is a member already.".to_owned())),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn delete_invitation(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, String)>,
    member: Member,
) -> Result<Response, Error> {
    let actor = member.signed_in.actor_as(true, &console);
    match console.accounts_to_change().await?.delete_invitation(member.workspace(), &id, &actor).await? {
        true => Ok(member.redirect("members", "invitation-deleted")),
        false => Ok(member.redirect("members", "gone")),
    }
}

/// A change of a member that the user confirms.
#[derive(PartialEq)]
enum Change {
    Removal,
    /// The member becomes an admin, or the admin a member.
    Role,
}

#[derive(Template)]
#[template(path = "member_change.html")]
struct ChangePage {
    shell: Shell,
    base: String,
    row: User,
    change: Change,
    /// The page of the list.
    page: u32,
    error: Option<&'static str>,
}

pub(crate) async fn confirm_remove(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, i64)>,
    member: Member,
) -> Result<Response, Error> {
    change_page(&console, &member, id, Change::Removal, PageNumber::default(), None).await
}

pub(crate) async fn remove(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, i64)>,
    member: Member,
) -> Result<Response, Error> {
    let actor = member.signed_in.actor_as(true, &console);
    let removed =
        console.accounts_to_change().await?.remove_user(member.workspace(), UserId(id), &actor).await;
    match removed {
        Ok(()) if UserId(id) == member.signed_in.user.id => Ok(member.redirect("sign-in", "left")),
        Ok(()) => Ok(member.redirect("members", "member-removed")),
        Err(StoreError::LastAdmin(_)) => {
            change_page(&console, &member, id, Change::Removal, PageNumber::default(), Some(LAST_ADMIN)).await
        }
        Err(StoreError::UnknownUser) => Ok(member.redirect("members", "gone")),
        Err(error) => Err(error.into()),
    }
}

const LAST_ADMIN: &str = "A workspace needs an admin. Make another member an admin first.";

async fn change_page(
    console: &Console,
    member: &Member,
    id: i64,
    change: Change,
    PageNumber { page }: PageNumber,
    error: Option<&'static str>,
) -> Result<Response, Error> {
    let row = console.accounts().await?.user(UserId(id)).await?;
    let Some(row) = row.filter(|row| row.workspace == *member.workspace()) else {
        return Ok(member.redirect("members", "gone"));
    };
    let (shell, base) = (Shell::of_user(&member.signed_in, "members", None), member.path("members"));
    let status = if error.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
    Ok(page_with(status, &ChangePage { shell, base, row, change, page, error }))
}

pub(crate) async fn confirm_role(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, i64)>,
    Query(number): Query<PageNumber>,
    member: Member,
) -> Result<Response, Error> {
    change_page(&console, &member, id, Change::Role, number, None).await
}

#[derive(Deserialize)]
pub(crate) struct NewRole {
    role: String,
}

pub(crate) async fn set_role(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, i64)>,
    Query(number): Query<PageNumber>,
    member: Member,
    Form(form): Form<NewRole>,
) -> Result<Response, Error> {
    let role: Role = form.role.parse().map_err(|_| Error::BadRequest)?;
    let actor = member.signed_in.actor_as(true, &console);
    let set =
        console.accounts_to_change().await?.set_role(member.workspace(), UserId(id), role, &actor).await;
    match set {
        Ok(()) => {
            Ok(Redirect::to(&number.path_after(&member.path("members"), "role-changed")).into_response())
        }
        Err(StoreError::LastAdmin(_)) => {
            change_page(&console, &member, id, Change::Role, number, Some(LAST_ADMIN)).await
        }
        Err(StoreError::UnknownUser) => Ok(member.redirect("members", "gone")),
        Err(error) => Err(error.into()),
    }
}
