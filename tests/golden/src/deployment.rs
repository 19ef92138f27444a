//! Plays the transcripts against a server that has other workspaces and people.

use std::time::Duration;
use std::{fmt, io};

use enrich_lib::wire;
use thiserror::Error;

use crate::client::{Reply, Stream};
use crate::exchange::Exchange;
use crate::request::{self, Replacement};
use crate::scenario::Scenario;
use crate::server::escaped;

/// A workspace's keys.
#[derive(Clone)]
pub struct WorkspaceKeys {
    /// A key.
    pub key: String,
    /// Another key of the same workspace.
    pub second: Option<String>,
}

impl fmt::Debug for WorkspaceKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkspaceKeys").finish_non_exhaustive()
    }
}

/// A server and what is known of its data. No other client may use the workspaces meanwhile.
pub struct Deployment<'a> {
    /// Opens a connection.
    pub connect: &'a dyn Fn() -> io::Result<Box<dyn Stream>>,
    /// The value of the header `host`.
    pub host: String,
    /// The path before that of the interface, without a slash at its end.
    pub base_path: String,
    /// A workspace with credits.
    pub workspace: WorkspaceKeys,
    /// A workspace with a low limit, all of whose requests are used up. Without it, no 429 is tested.
    pub limited: Option<WorkspaceKeys>,
    /// A key of a workspace without credits. Without it, no 402 is tested.
    pub without_credits: Option<String>,
    /// A revoked key.
    pub revoked: Option<String>,
    /// The email of a person with a match. Without it, no 200 is tested.
    pub found: Option<String>,
    /// The email of a person without a match, if not that of the transcripts.
    pub not_found: Option<String>,
    /// Waits until the limit of the workspace admits more requests.
    pub wait: &'a dyn Fn(Duration),
}

impl fmt::Debug for Deployment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deployment").field("host", &self.host).finish_non_exhaustive()
    }
}

/// A server that cannot be tested.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeploymentError {
    /// No connection can be made.
    #[error("no connection can be made")]
    Connect(#[source] io::Error),
    /// The server does not reply to a request without a key as the interface requires.
    #[error("the reply to a request without a key is not a 401 of the interface: {0}")]
    NotTheService(String),
    /// The server does not accept this key.
    #[error("the server does not accept the key {0}")]
    Key(&'static str),
}

/// The workspaces of a deployment, as indexes of their counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workspace {
    WithCredits,
    Limited,
    WithoutCredits,
}

/// The email without a match in the transcripts.
const NOT_FOUND: &str = "nobody.here@gmail.com";

impl Deployment<'_> {
    /// Returns the workspace for an exchange, and what replaces the texts of the transcript. The error is the
    /// reason to skip it.
    pub(crate) fn adapt<'s>(
        &self,
        scenario: &'s Scenario,
        exchange: &Exchange<'_>,
    ) -> Result<(Workspace, Vec<Replacement>), &'s str> {
        if scenario.has_faults() {
            return Err("a port of the server must fail");
        }
        if let Some(why) = &scenario.host_only {
            return Err(why);
        }
        if scenario.given.keys.iter().any(|key| key.is_test) {
            return Err("needs a test key");
        }
        if !scenario.given.opted_out.is_empty() {
            return Err("needs people who opted out");
        }
        let workspace = match () {
            () if exchange.expects(429) => Workspace::Limited,
            () if exchange.expects(402) => Workspace::WithoutCredits,
            () => Workspace::WithCredits,
        };
        let mut replacements = self.location();
        for given in &scenario.given.keys {
            let placeholder = format!("{{{}}}", given.name).into_bytes();
            if exchange
                .requests()
                .any(|request| request.windows(placeholder.len()).any(|part| part == placeholder))
            {
                let mut of_workspace =
                    scenario.given.keys.iter().filter(|key| key.workspace == given.workspace && !key.revoked);
                let is_second = of_workspace.next().is_some_and(|first| first.name != given.name);
                let key = self.key(workspace, given.revoked, is_second)?;
                replacements.push((placeholder, key.as_bytes().to_vec()));
            }
        }
        if exchange.expects(200) {
            let found = self.found.as_ref().ok_or("needs the email of a person who is found")?;
            let contains = |email: &str| {
                exchange
                    .requests()
                    .any(|request| request.windows(email.len()).any(|part| part == email.as_bytes()))
            };
            let is_expected = |profile: &str| {
                let quoted = format!("\"{profile}\"");
                exchange.replies().any(|reply| String::from_utf8_lossy(reply).contains(&quoted))
            };
            let mut people =
                scenario.given.people.iter().filter(|person| is_expected(person.profile.as_str()));
            let person = people.find(|person| contains(&person.email) || person.email == *found);
            let person = person.ok_or("needs the person of the transcript")?;
            replacements.push((person.email.clone().into_bytes(), found.clone().into_bytes()));
        }
        if let Some(not_found) = &self.not_found {
            replacements.push((NOT_FOUND.into(), not_found.clone().into_bytes()));
        }
        exchange.requests().try_for_each(|request| request::adapted(request, &replacements).map(|_| ()))?;
        Ok((workspace, replacements))
    }

    pub(crate) fn key(
        &self,
        workspace: Workspace,
        is_revoked: bool,
        is_second: bool,
    ) -> Result<&str, &'static str> {
        let keys = match workspace {
            _ if is_revoked => return self.revoked.as_deref().ok_or("needs a revoked key"),
            Workspace::WithoutCredits if is_second => {
                return Err("needs two keys of a workspace without credits");
            }
            Workspace::WithoutCredits => {
                return self.without_credits.as_deref().ok_or("needs a key of a workspace without credits");
            }
            Workspace::WithCredits => &self.workspace,
            Workspace::Limited => {
                self.limited.as_ref().ok_or("needs a key of a workspace with a low limit")?
            }
        };
        match is_second {
            true => keys.second.as_deref().ok_or("needs a second key of the workspace"),
            false => Ok(&keys.key),
        }
    }

    /// Formats the start of a reply. Keys and emails are replaced before the body is cut, which may divide them.
    pub(crate) fn excerpt(&self, reply: &Reply) -> String {
        const BODY_BYTES_MAX: usize = 300;
        let body = self.redacted(&escaped(&reply.body));
        escaped(&reply.head) + &body[..body.len().min(BODY_BYTES_MAX)]
    }

    /// Replaces the keys and the emails of this deployment, which a server may send back, in any case.
    pub(crate) fn redacted(&self, text: &str) -> String {
        let Self { workspace, limited, without_credits, revoked, found, not_found, .. } = self;
        let keys = [Some(workspace), limited.as_ref()].into_iter().flatten();
        let secrets = keys.flat_map(|keys| [Some(&keys.key), keys.second.as_ref()]);
        let secrets =
            secrets.chain([without_credits, revoked, found, not_found].map(Option::as_ref)).flatten();
        let secrets = secrets.map(|secret| escaped(secret.as_bytes()).to_ascii_lowercase());
        let mut secrets: Vec<_> = secrets.filter(|secret| !secret.is_empty()).collect();
        // One may contain another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.iter().fold(text.to_owned(), |text, secret| {
            let (mut out, mut end) = (String::new(), 0);
            for (at, _) in text.to_ascii_lowercase().match_indices(secret) {
                out = out + &text[end..at] + "{redacted}";
                end = at + secret.len();
            }
            out + &text[end..]
        })
    }

    fn location(&self) -> Vec<Replacement> {
        let path = format!("{}{}", self.base_path, wire::PATH);
        vec![
            (b"api.example".to_vec(), self.host.clone().into_bytes()),
            (wire::PATH.into(), path.into_bytes()),
        ]
    }

    /// Returns a request with an invalid body, which is counted and free.
    pub(crate) fn invalid_request(&self, key: Option<&str>) -> Vec<u8> {
        let authorization = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let Deployment { host, base_path, .. } = self;
        let path = wire::PATH;
        format!(
            "POST {base_path}{path} HTTP/1.1\r\nhost: {host}\r\n{authorization}content-type: application/json\r\n\
             content-length: 1\r\n\r\n{{"
        )
        .into_bytes()
    }
}
