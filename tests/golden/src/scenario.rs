//! Transcripts and their parser. The crate's README describes the format.

use enrich_lib::model::{ProfileUrl, WorkspaceId};
use enrich_lib::window::Quota;
use thiserror::Error;

use crate::text;

/// A transcript.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scenario {
    /// The name of its file, without the extension.
    pub name: String,
    /// Why only the standalone host behaves as in the transcript, or `None` if all servers do.
    pub host_only: Option<String>,
    /// The data that the server must have before the first step.
    pub given: Given,
    /// The steps, each with its line number in the file.
    pub steps: Vec<(usize, Step)>,
}

/// The data that a server must have.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Given {
    /// Workspaces, with windows of one day.
    pub workspaces: Vec<GivenWorkspace>,
    /// The workspaces' keys.
    pub keys: Vec<GivenKey>,
    /// People with profiles.
    pub people: Vec<GivenPerson>,
    /// Emails of people who opted out.
    pub opted_out: Vec<String>,
}

/// A workspace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GivenWorkspace {
    /// The workspace's name, prefixed with the scenario's name so that scenarios can share a server.
    pub id: WorkspaceId,
    /// The rate limit.
    pub quota: Quota,
    /// The credits.
    pub credits: u64,
}

/// An API key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GivenKey {
    /// The placeholder for the key in requests, without the braces.
    pub name: String,
    /// The key's workspace.
    pub workspace: WorkspaceId,
    /// True if the key is revoked.
    pub revoked: bool,
    /// True if it is a test key.
    pub is_test: bool,
}

/// A person.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GivenPerson {
    /// An email of the person.
    pub email: String,
    /// The person's profile.
    pub profile: ProfileUrl,
}

/// A step of a scenario.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Step {
    /// The client connects. The server must end the previous connection, if any, without sending more bytes.
    Connect,
    /// The client sends each byte separately from here on, on this connection.
    Bytewise,
    /// The client sends these bytes. `{NAME}` stands for a key.
    Send(Vec<u8>),
    /// The server sends these bytes.
    Expect(Vec<u8>),
    /// The client shuts down its write half of the connection.
    End,
    /// The server closes the connection without sending more bytes.
    Closed,
    /// The port fails from here on.
    Fails(Port),
    /// All ports work from here on.
    Works,
}

/// The port operations that a scenario can make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Port {
    /// Find the workspace of a key.
    Keys,
    /// Count a request.
    Windows,
    /// Hold credits.
    Holds,
    /// Settle a hold.
    Settlements,
    /// Resolve a person.
    Resolver,
}

/// An invalid line of a transcript: the file, the number of the line and the reason.
#[derive(Debug, Error)]
#[error("{0}:{1}: {2}")]
pub struct ScenarioError(String, usize, String);

impl Scenario {
    /// Parses the text of a file.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let mut scenario =
            Self { name: name.to_owned(), host_only: None, given: Given::default(), steps: Vec::new() };
        let mut goes_on = false; // whether the next line may continue the current message
        for (number, line) in (1..).zip(text.lines()) {
            goes_on = scenario
                .line(number, line, goes_on)
                .map_err(|what| ScenarioError(format!("{name}.http"), number, what))?;
        }
        Ok(scenario)
    }

    /// Returns whether the scenario makes a port fail.
    pub fn has_faults(&self) -> bool {
        self.steps.iter().any(|(_, step)| matches!(step, Step::Fails(_)))
    }

    /// Parses a line. Returns whether the next line may continue its message.
    fn line(&mut self, number: usize, line: &str, goes_on: bool) -> Result<bool, String> {
        if let Some(text) = line.strip_prefix("> ") {
            let bytes = text::bytes(text)?;
            match self.steps.last_mut() {
                Some((_, Step::Send(sent))) if goes_on => sent.extend(bytes),
                _ => self.steps.push((number, Step::Send(bytes))),
            }
            return Ok(true);
        }
        if let Some(text) = line.strip_prefix("< ") {
            let bytes = text::bytes(text)?;
            match self.steps.last_mut() {
                Some((_, Step::Expect(expected))) if goes_on => expected.extend(bytes),
                _ => self.steps.push((number, Step::Expect(bytes))),
            }
            return Ok(true);
        }
        if !line.is_empty() && !line.starts_with('#') {
            match step(line) {
                Some(step) => self.steps.push((number, step)),
                None => self.given(line)?,
            }
        }
        Ok(false)
    }

    fn given(&mut self, line: &str) -> Result<(), String> {
        if let Some(why) = line.strip_prefix("host only: ") {
            self.host_only = Some(why.to_owned());
            return Ok(());
        }
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text:?} is not a number"));
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["workspace", name, "limit", limit, "credits", credits] => {
                let quota = Quota::new(number(limit)?, Quota::WINDOW_SECONDS_MAX)
                    .map_err(|fault| fault.to_string())?;
                let (id, credits) = (self.workspace(name)?, number(credits)?.into());
                self.given.workspaces.push(GivenWorkspace { id, quota, credits });
            }
            ["key", name, "of", workspace] => self.key(name, workspace, "")?,
            [kind @ ("revoked" | "test"), "key", name, "of", workspace] => self.key(name, workspace, kind)?,
            ["person", email, name] => {
                let profile = ProfileUrl::from_name(name).map_err(|fault| fault.to_string())?;
                self.given.people.push(GivenPerson { email: email.to_owned(), profile });
            }
            ["opted", "out", email] => self.given.opted_out.push(email.to_owned()),
            _ => return Err(format!("{line:?} is not a line of a transcript; see README.md")),
        }
        Ok(())
    }

    fn key(&mut self, name: &str, workspace: &str, kind: &str) -> Result<(), String> {
        let workspace = self.workspace(workspace)?;
        if self.given.workspaces.iter().all(|given| given.id != workspace) {
            return Err(format!("there is no workspace {workspace}"));
        }
        let (revoked, is_test) = (kind == "revoked", kind == "test");
        self.given.keys.push(GivenKey { name: name.to_owned(), workspace, revoked, is_test });
        Ok(())
    }

    fn workspace(&self, name: &str) -> Result<WorkspaceId, String> {
        format!("{}.{name}", self.name).parse().map_err(|fault| format!("{name:?}: {fault}"))
    }
}

fn step(line: &str) -> Option<Step> {
    Some(match line {
        "connect" => Step::Connect,
        "bytewise" => Step::Bytewise,
        "end" => Step::End,
        "closed" => Step::Closed,
        "keys fail" => Step::Fails(Port::Keys),
        "windows fail" => Step::Fails(Port::Windows),
        "holds fail" => Step::Fails(Port::Holds),
        "settlements fail" => Step::Fails(Port::Settlements),
        "the resolver fails" => Step::Fails(Port::Resolver),
        "all work" => Step::Works,
        _ => return None,
    })
}
