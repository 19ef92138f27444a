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
    page_error: Option<&'static str>,
    form: Token,
    email: String,
    /// The error of the email.
    error: Option<String>,
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
            None => accounts.invitations(member.workspace(), console.now()).await?,
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
            page_error: None,
            form: Token::generate(),
            email: String::new(),
            error: None,
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
    let mut members = MembersPage::load(&console, &member, None, PageNumber::default()).await?;
    Ok(match created {
        Ok(link) => page(&MembersPage { link: Some((link, form.email)), ..members }),
        Err(error) => {
            (members.email, members.error) = (form.email, Some(error));
            page_with(StatusCode::UNPROCESSABLE_ENTITY, &members)
        }
    })
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

#[derive(Template)]
#[template(path = "member_remove.html")]
struct RemovePage {
    shell: Shell,
    base: String,
    row: User,
    error: Option<&'static str>,
}

pub(crate) async fn confirm_remove(
    State(console): State<Arc<Console>>,
    Path((_, id)): Path<(String, i64)>,
    member: Member,
) -> Result<Response, Error> {
    match remove_page(&console, &member, id, None).await {
        Err(Error::NotFound) => Ok(member.redirect("members", "gone")),
        shown => Ok(page(&shown?)),
    }
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
        Ok(()) if UserId(id) == member.signed_in.user.id => Ok(Redirect::to("/").into_response()),
        Ok(()) => Ok(member.redirect("members", "member-removed")),
        Err(StoreError::LastAdmin(_)) => {
            let page = remove_page(&console, &member, id, Some(LAST_ADMIN)).await?;
            Ok(page_with(StatusCode::CONFLICT, &page))
        }
        Err(StoreError::UnknownUser) => Ok(member.redirect("members", "gone")),
        Err(error) => Err(error.into()),
    }
}

const LAST_ADMIN: &str = "A workspace needs an admin. Make another member an admin first.";

async fn remove_page(
    console: &Console,
    member: &Member,
    id: i64,
    error: Option<&'static str>,
) -> Result<RemovePage, Error> {
    let row = console.accounts().await?.user(UserId(id)).await?;
    let row = row.filter(|row| row.workspace == *member.workspace()).ok_or(Error::NotFound)?;
    let shell = Shell::of_user(&member.signed_in, "members", None);
    Ok(RemovePage { shell, base: member.path("members"), row, error })
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
            let members = MembersPage::load(&console, &member, None, PageNumber::default()).await?;
            let page = MembersPage { page_error: Some(LAST_ADMIN), ..members };
            Ok(page_with(StatusCode::CONFLICT, &page))
        }
        Err(StoreError::UnknownUser) => Ok(member.redirect("members", "gone")),
        Err(error) => Err(error.into()),
    }
}
