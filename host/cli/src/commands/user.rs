//! `enrich user`

use enrich_console::Token;
use enrich_host::SystemArrivals;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_store::users::{Link, LinkPurpose, Role, User, UserEmail, UserEmailError};
use enrich_store::{Actor, StoreError};
use serde_json::json;

use crate::accounts::Accounts;
use crate::args::{ConsoleUrlArg, UserCommand};
use crate::failure::Failure;
use crate::output::{self, Format, rfc3339, second};
use crate::public_url::PublicUrl;
use crate::settings::SharedSettings;

pub fn run(settings: &SharedSettings, command: UserCommand, format: Format) -> Result<(), Failure> {
    let mut accounts = settings.accounts()?.open()?;
    let url_of = |ConsoleUrlArg { url }| {
        let is_default = url.is_none() && !settings.has_console();
        Ok::<_, Failure>((url.map_or_else(|| settings.console_url(), Ok)?, is_default))
    };
    let (link, is_default) = match command {
        UserCommand::Invite { workspace, email, role, url } => {
            let (email, (url, is_default)) = (parse(&email)?, url_of(url)?);
            (NewLink::join(&url, workspace, email, role), is_default)
        }
        UserCommand::Reset { workspace, email, url } => {
            let (email, (url, is_default)) = (parse(&email)?, url_of(url)?);
            (NewLink::reset(&url, workspace, email), is_default)
        }
        UserCommand::List { workspace } => return list(&mut accounts, workspace.as_ref(), format),
        UserCommand::Remove { workspace, email } => {
            return remove(&mut accounts, &workspace, &parse(&email)?, format);
        }
    };
    create_link(&mut accounts, &link, format)?;
    if is_default {
        output::remark(
            "warning: the settings have no web application, so the link begins with the default address of \
             `enrich serve --sample`; set console.url, or add --url",
        );
    }
    Ok(())
}

/// Deletes a user, or withdraws the invitation of one.
fn remove(
    accounts: &mut Accounts,
    workspace: &WorkspaceId,
    email: &UserEmail,
    format: Format,
) -> Result<(), Failure> {
    let actor = Actor::operator(SystemArrivals::now());
    let was_invited = accounts.run(async |users| {
        let invitations = users.invitations(Some(workspace), actor.now).await?;
        // An invitation that was accepted since then has a user.
        if let Some(link) = invitations.iter().find(|link| link.email == *email)
            && users.delete_invitation(workspace, &link.digest.id(), &actor).await?
        {
            return Ok(true);
        }
        let user = users.user_by_email(workspace, email).await?.ok_or(StoreError::UnknownUser)?;
        users.remove_user(workspace, user.id, &actor).await?;
        Ok::<_, StoreError>(false)
    })?;
    let email = email.as_str();
    match (format.json, was_invited) {
        (true, _) => output::json(&json!({
            "workspace": workspace.as_str(), "email": email, "was_invited": was_invited, "removed": true
        })),
        (false, true) => output::line(format!("withdrew the invitation of {email}")),
        (false, false) => output::line(format!("removed {email}; the user's keys are unchanged")),
    }
}

/// Parses an email. The command line parser would quote an invalid one in its error.
fn parse(email: &str) -> Result<UserEmail, Failure> {
    email.parse().map_err(|error: UserEmailError| Failure::usage(error.to_string()))
}

/// A one-time link and its URL, which contains the token.
pub struct NewLink {
    pub link: Link,
    pub url: String,
    /// The URL of the workspace's sign-in page.
    sign_in: String,
}

impl NewLink {
    /// Creates an invitation to a workspace. The web application at `url` accepts it.
    pub fn join(url: &PublicUrl, workspace: WorkspaceId, email: UserEmail, role: Role) -> Self {
        Self::new(url, "join", workspace, LinkPurpose::Join(role), email)
    }

    /// Creates a link that sets a new password.
    fn reset(url: &PublicUrl, workspace: WorkspaceId, email: UserEmail) -> Self {
        Self::new(url, "reset", workspace, LinkPurpose::Reset, email)
    }

    fn new(
        url: &PublicUrl,
        path: &str,
        workspace: WorkspaceId,
        purpose: LinkPurpose,
        email: UserEmail,
    ) -> Self {
        let (token, sign_in) = (Token::generate(), format!("{url}/w/{workspace}/sign-in"));
        let link = token.link(workspace, purpose, email, &Actor::operator(SystemArrivals::now()));
        Self { link, url: url.link(path, token.reveal()), sign_in }
    }

    /// Stores the link and prints `text`, which contains its URL. Deletes an invitation that cannot be
    /// printed.
    pub async fn deliver(&self, users: &mut enrich_store::Accounts, text: &str) -> Result<(), Failure> {
        let Link { digest, workspace, purpose, created_at, .. } = &self.link;
        let actor = Actor::operator(*created_at);
        users.create_link(&self.link, &actor).await?;
        let Err(error) = output::write_line(text) else { return Ok(()) };
        let what = format!("cannot write the link to standard output: {error}");
        let result = match purpose {
            LinkPurpose::Join(_) => match users.delete_invitation(workspace, &digest.id(), &actor).await {
                Ok(true) => "it was deleted",
                _ => "it could not be deleted",
            },
            LinkPurpose::Reset => "the old password is no longer valid",
        };
        Err(Failure::new(format!("{what}; {result}"))
            .advise("create another link with the same command, which replaces this one"))
    }
}

fn create_link(accounts: &mut Accounts, new: &NewLink, format: Format) -> Result<(), Failure> {
    let NewLink { link, url, sign_in } = new;
    let text = if format.json {
        let mut value = json!({
            "workspace": link.workspace.as_str(),
            "email": link.email.as_str(),
            "url": url,
            "sign_in": sign_in,
            "expires_at": rfc3339(link.expires_at),
        });
        if let LinkPurpose::Join(role) = link.purpose {
            value["role"] = role.as_str().into();
        }
        value.to_string()
    } else {
        url.clone()
    };
    accounts.run(async |users| new.deliver(users, &text).await)?;
    if !format.json {
        output::remark(format!(
            "send this link to the user; it works once, until {}, and is not shown again; the user then signs in at {sign_in}",
            second(link.expires_at)
        ));
    }
    Ok(())
}

/// Lists users and open invitations, by workspace and email.
fn list(accounts: &mut Accounts, workspace: Option<&WorkspaceId>, format: Format) -> Result<(), Failure> {
    let now = SystemArrivals::now();
    let (users, invitations) = accounts.run(async |accounts| {
        let invitations = accounts.invitations(workspace, now).await?;
        Ok::<_, StoreError>((accounts.users(workspace).await?, invitations))
    })?;
    let mut rows: Vec<_> = users.iter().map(Row::of_user).collect();
    rows.extend(invitations.iter().filter_map(Row::of_invitation));
    rows.sort_by_key(|row| (row.workspace, row.email));
    if format.json {
        let rows = rows.iter().map(|row| {
            let Row { workspace, email, role, two_factor, created_at, invited_until } = row;
            json!({
                "workspace": workspace.as_str(),
                "email": email.as_str(),
                "role": role.as_str(),
                "two_factor": two_factor,
                "created_at": rfc3339(*created_at),
                "invited_until": invited_until.map(rfc3339),
            })
        });
        return output::json(&rows.collect::<Vec<_>>());
    }
    let rows = rows.iter().map(|row| {
        let state = match (row.invited_until, row.two_factor) {
            (Some(at), _) => format!("invited until {}", second(at)),
            (None, true) => "active, two-factor".to_owned(),
            (None, false) => "active".to_owned(),
        };
        let (workspace, email, role) = (row.workspace.as_str(), row.email.as_str(), row.role.as_str());
        [workspace.to_owned(), email.to_owned(), role.to_owned(), second(row.created_at), state]
    });
    output::table(["WORKSPACE", "EMAIL", "ROLE", "CREATED", "STATE"], rows)
}

/// A user or an invitation in the list.
struct Row<'a> {
    workspace: &'a WorkspaceId,
    email: &'a UserEmail,
    role: Role,
    two_factor: bool,
    created_at: Timestamp,
    /// When the invitation expires. `None` for a user.
    invited_until: Option<Timestamp>,
}

impl<'a> Row<'a> {
    fn of_user(user: &'a User) -> Self {
        let User { workspace, email, role, totp, created_at, .. } = user;
        let (role, created_at) = (*role, *created_at);
        Self { workspace, email, role, two_factor: totp.is_some(), created_at, invited_until: None }
    }

    fn of_invitation(link: &'a Link) -> Option<Self> {
        let Link { workspace, email, purpose: LinkPurpose::Join(role), created_at, expires_at, .. } = link
        else {
            return None;
        };
        let (role, created_at, invited_until) = (*role, *created_at, Some(*expires_at));
        Some(Self { workspace, email, role, two_factor: false, created_at, invited_until })
    }
}
