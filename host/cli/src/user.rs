//! `enrich user`

use enrich_console::Token;
use enrich_host::SystemArrivals;
use enrich_lib::model::WorkspaceId;
use enrich_store::users::{Link, LinkPurpose, Role, User, UserEmail, UserEmailError};
use enrich_store::{Actor, StoreError};
use serde_json::json;

use crate::accounts::{Accounts, StoreLocation};
use crate::args::{ConsoleUrlArg, Format, UserCommand};
use crate::console_url::ConsoleUrl;
use crate::failure::Failure;
use crate::output::{self, rfc3339, second};

/// Runs a command. `console_url` returns the URL of the web application, unless a flag sets it.
pub fn run(
    store: StoreLocation,
    console_url: impl FnOnce() -> Result<ConsoleUrl, Failure>,
    command: UserCommand,
) -> Result<(), Failure> {
    let mut accounts = store.open()?;
    match command {
        UserCommand::Invite { workspace, email, role, url: ConsoleUrlArg { url }, format } => {
            let link = NewLink::join(&url.map_or_else(console_url, Ok)?, workspace, parse(&email)?, role);
            create_link(&mut accounts, &link, format)
        }
        UserCommand::List { workspace, format } => list(&mut accounts, workspace.as_ref(), format),
        UserCommand::Reset { email, url: ConsoleUrlArg { url }, format } => {
            let link = NewLink::reset(&url.map_or_else(console_url, Ok)?, parse(&email)?);
            create_link(&mut accounts, &link, format)
        }
        UserCommand::Remove { email, format } => {
            let (email, actor) = (parse(&email)?, Actor::operator(SystemArrivals::now()));
            accounts.run(async |users| users.remove_user(&email, &actor).await)?;
            if format.json {
                return output::json(&json!({ "email": email.as_str(), "removed": true }));
            }
            output::line(format!("removed {}; the user's keys stay valid", email.as_str()))
        }
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
}

impl NewLink {
    /// Creates an invitation to a workspace. The web application at `url` accepts it.
    pub fn join(url: &ConsoleUrl, workspace: WorkspaceId, email: UserEmail, role: Role) -> Self {
        Self::new(url, "join", LinkPurpose::Join { workspace, role }, email)
    }

    /// Creates a link that sets a new password.
    fn reset(url: &ConsoleUrl, email: UserEmail) -> Self {
        Self::new(url, "reset", LinkPurpose::Reset, email)
    }

    fn new(url: &ConsoleUrl, path: &str, purpose: LinkPurpose, email: UserEmail) -> Self {
        let token = Token::generate();
        let link = token.link(purpose, email, &Actor::operator(SystemArrivals::now()));
        Self { link, url: url.link(path, token.reveal()) }
    }

    /// Stores the link and prints `text`, which contains its URL. Deletes an invitation that cannot be printed.
    pub async fn deliver(&self, users: &mut dyn enrich_store::Accounts, text: &str) -> Result<(), Failure> {
        let Link { digest, purpose, created_at, .. } = &self.link;
        let actor = Actor::operator(*created_at);
        users.create_link(&self.link, &actor).await?;
        let Err(error) = output::write_line(text) else { return Ok(()) };
        let what = format!("cannot write the link to standard output: {error}");
        let deleted = match purpose {
            LinkPurpose::Join { workspace, .. } => {
                users.delete_invitation(workspace, &digest.id(), &actor).await
            }
            LinkPurpose::Reset => Ok(false),
        };
        Err(match deleted {
            Ok(true) => Failure::new(format!("{what}; it was deleted"))
                .advise("create another link with the same command"),
            _ => Failure::new(what)
                .advise("create another link with the same command, which replaces this one"),
        })
    }
}

fn create_link(accounts: &mut Accounts, new: &NewLink, format: Format) -> Result<(), Failure> {
    let NewLink { link, url } = new;
    let text = if format.json {
        let mut value = json!({
            "email": link.email.as_str(),
            "url": url,
            "expires_at": rfc3339(link.expires_at),
        });
        if let LinkPurpose::Join { workspace, role } = &link.purpose {
            value["workspace"] = workspace.as_str().into();
            value["role"] = role.as_str().into();
        }
        value.to_string()
    } else {
        url.clone()
    };
    accounts.block_on(async |users| new.deliver(users, &text).await)?;
    if !format.json {
        output::remark(format!(
            "send this link to the user; it works once, until {}, and is not shown again",
            second(link.expires_at)
        ));
    }
    Ok(())
}

fn list(accounts: &mut Accounts, workspace: Option<&WorkspaceId>, format: Format) -> Result<(), Failure> {
    let users = accounts.run(async |users| {
        let all = users.users().await?;
        let Some(workspace) = workspace else { return Ok(all) };
        if !users.workspaces().await?.iter().any(|row| row.id == *workspace) {
            return Err(StoreError::UnknownWorkspace(workspace.clone()));
        }
        Ok(all.into_iter().filter(|user| user.role_in(workspace).is_some()).collect())
    })?;
    if format.json {
        let rows = users.iter().map(|user| {
            let workspaces = user.memberships.iter();
            let workspaces =
                workspaces.map(|(id, role)| json!({ "name": id.as_str(), "role": role.as_str() }));
            json!({
                "email": user.email.as_str(),
                "two_factor": user.totp.is_some(),
                "created_at": rfc3339(user.created_at),
                "workspaces": workspaces.collect::<Vec<_>>(),
            })
        });
        return output::json(&rows.collect::<Vec<_>>());
    }
    let rows = users.iter().map(|user| {
        let two_factor = if user.totp.is_some() { "on" } else { "off" };
        [user.email.as_str().to_owned(), two_factor.to_owned(), second(user.created_at), memberships(user)]
    });
    output::table(["EMAIL", "TWO-FACTOR", "CREATED", "WORKSPACES"], rows)
}

fn memberships(user: &User) -> String {
    let memberships = user.memberships.iter().map(|(id, role)| format!("{id} ({})", role.as_str()));
    let text = memberships.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "-".to_owned() } else { text }
}
