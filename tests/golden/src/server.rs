//! Plays scenarios against a server and compares its replies.

use std::fmt;
use std::sync::Arc;

use crate::client::{self, Client, Connect, Reply};
use crate::keys::Keys;
use crate::request::{Replacement, replaced};
use crate::scenario::{Scenario, Step};
use crate::stores::Faults;
use crate::text::{self, Seen};

/// A running server and the data needed to test it.
#[derive(Clone)]
pub struct Server {
    connect: Connect,
    kind: Kind,
    keys: Keys,
    faults: Option<Arc<Faults>>,
}

/// How to compare replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The standalone host: all bytes must match.
    Host,
    /// Another server built on the library. All bytes must match, except for the headers that belong to the
    /// server itself: `connection`, `content-length`, `date`, `keep-alive` and `server`. Host-only scenarios
    /// are skipped.
    Gateway,
}

/// The headers that a server adds by itself. `content-length` must still be correct: it determines where the
/// body ends.
const SERVERS_HEADERS: [&str; 5] = ["connection", "content-length", "date", "keep-alive", "server"];

/// The results of all scenarios, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Scenarios whose replies all matched.
    pub passed: Vec<String>,
    /// Scenarios that were not played, each with the reason.
    pub skipped: Vec<(String, String)>,
    /// Scenarios with a mismatch, each with its line and description.
    pub failed: Vec<(String, String)>,
}

impl Server {
    /// A server to which `connect` opens connections for HTTP/1.1. A scenario with a key that is not in
    /// `keys` is skipped, and so are those with failing ports.
    pub fn new(connect: Connect, kind: Kind, keys: Keys) -> Self {
        Self { connect, kind, keys, faults: None }
    }

    /// Also plays the scenarios with failing ports: `faults` makes those of the server fail.
    pub fn with_faults(mut self, faults: Arc<Faults>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// Plays all `scenarios` sequentially. Blocks the thread.
    pub fn run(&self, scenarios: &[Scenario]) -> Report {
        let (mut report, mut seen) = (Report::default(), Seen::default());
        for scenario in scenarios {
            let name = scenario.name.clone();
            match self.keys_for(scenario) {
                Err(reason) => report.skipped.push((name, reason)),
                Ok(keys) => match self.play(scenario, &keys, &mut seen) {
                    Ok(()) => report.passed.push(name),
                    Err(what) => report.failed.push((name, what)),
                },
            }
        }
        report
    }

    /// Returns the keys of a scenario. The error is the reason to skip it.
    fn keys_for(&self, scenario: &Scenario) -> Result<Vec<Replacement>, String> {
        if let (Kind::Gateway, Some(why)) = (self.kind, &scenario.host_only) {
            return Err(format!("host only: {why}"));
        }
        if scenario.has_faults() && self.faults.is_none() {
            return Err("the ports of this server cannot be made to fail".to_owned());
        }
        self.keys.of(scenario).map_err(|name| format!("the key {{{name}}} is missing"))
    }

    fn play(&self, scenario: &Scenario, keys: &[Replacement], seen: &mut Seen) -> Result<(), String> {
        let mut client = None;
        let played = scenario.steps.iter().try_for_each(|(line, step)| {
            self.step(step, keys, &mut client, seen).map_err(|what| format!("line {line}: {what}"))
        });
        if let Some(faults) = &self.faults {
            faults.work();
        }
        played?;
        hang_up(client.take()).map_err(|what| format!("at the end: {what}"))
    }

    fn step(
        &self,
        step: &Step,
        keys: &[Replacement],
        client: &mut Option<Client>,
        seen: &mut Seen,
    ) -> Result<(), String> {
        match step {
            Step::Connect => {
                hang_up(client.take())?;
                *client = Some(Client::new((self.connect)().map_err(|error| error.to_string())?));
            }
            Step::Fails(port) => self.faults.iter().for_each(|faults| faults.fail(*port)),
            Step::Works => self.faults.iter().for_each(|faults| faults.work()),
            Step::Bytewise | Step::Send(_) | Step::End | Step::Closed | Step::Expect(_) => {
                let client = client.as_mut().ok_or("no connection is open")?;
                match step {
                    Step::Bytewise => client.send_bytewise(),
                    Step::Send(bytes) => client.send(&replaced(bytes, keys)),
                    Step::End => client.end(),
                    Step::Closed => client.closed()?,
                    Step::Expect(expected) => self.compare(expected, &client.reply()?, seen)?,
                    Step::Connect | Step::Fails(_) | Step::Works => {}
                }
            }
        }
        Ok(())
    }

    fn compare(&self, expected: &[u8], actual: &Reply, seen: &mut Seen) -> Result<(), String> {
        let whole = [&actual.head[..], &actual.body].concat();
        let is_same = match self.kind {
            Kind::Host => text::is(expected, &whole, seen),
            Kind::Gateway => {
                let has_length = |head: &[u8]| client::header(head, "content-length").is_some();
                has_length(expected) == has_length(&actual.head)
                    && text::is(&without_servers_headers(expected), &without_servers_headers(&whole), seen)
            }
        };
        if is_same {
            return Ok(());
        }
        Err(format!("expected\n  {}\nreceived\n  {}", escaped(expected), escaped(&whole)))
    }
}

/// Closes a connection. Fails if the server sends anything more.
fn hang_up(client: Option<Client>) -> Result<(), String> {
    let Some(mut client) = client else { return Ok(()) };
    client.end();
    client.closed()
}

fn without_servers_headers(reply: &[u8]) -> Vec<u8> {
    let (head, body) = reply.split_at(client::head_bytes(reply).unwrap_or(reply.len()));
    let is_servers = |line: &&[u8]| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        SERVERS_HEADERS.iter().any(|header| name.eq_ignore_ascii_case(header.as_bytes()))
    };
    let lines = head.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_servers(line));
    lines.chain([body]).collect::<Vec<_>>().concat()
}

/// Formats a reply as in a transcript.
pub(crate) fn escaped(reply: &[u8]) -> String {
    reply.escape_ascii().to_string().replace("\\\"", "\"").replace("\\r\\n", "\\r\\n\n  ")
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.passed.iter().try_for_each(|name| writeln!(f, "ok       {name}"))?;
        self.skipped.iter().try_for_each(|(name, reason)| writeln!(f, "skipped  {name}: {reason}"))?;
        self.failed.iter().try_for_each(|(name, what)| writeln!(f, "FAILED   {name}: {what}"))?;
        let [passed, skipped, failed] = [self.passed.len(), self.skipped.len(), self.failed.len()];
        write!(f, "{passed} ok, {skipped} skipped, {failed} failed")
    }
}
