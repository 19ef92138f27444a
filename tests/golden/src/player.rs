//! Plays the exchanges of the transcripts against a deployment.

use std::time::Duration;

use crate::client::{self, Client, Reply};
use crate::conformance::{Case, Conformance, Outcome};
use crate::deployment::{Deployment, DeploymentError, Workspace};
use crate::exchange::{Exchange, is_counted};
use crate::headers::{self, Unauthorized};
use crate::limits::Count;
use crate::request::{self, Replacement};
use crate::scenario::{Scenario, Step};
use crate::server::escaped;
use crate::text::{self, Seen};

/// A workspace with a higher limit takes too long to use up.
const LIMIT_MAX: u64 = 10_000;
/// A window that admits no request for longer is not waited for.
const WAIT_SECONDS_MAX: u64 = 900;
/// After this many timeouts, no more is sent: a server that hangs would take hours.
const TIMEOUTS_MAX: usize = 3;
/// How often an exchange is repeated because of the rate limit. Its matches are billed each time.
const REPETITIONS_MAX: usize = 3;

impl Deployment<'_> {
    /// Plays all `scenarios` sequentially. Blocks the thread.
    pub fn run(&self, scenarios: &[Scenario]) -> Result<Conformance, DeploymentError> {
        let mut player = Player {
            deployment: self,
            client: None,
            seen: Seen::default(),
            unauthorized: None,
            counts: [Count::default(); 3],
            matches: 0,
            timeouts: 0,
        };
        player.probe()?;
        let mut cases = Vec::new();
        for scenario in scenarios {
            for exchange in Exchange::all(scenario) {
                let outcome = player.play(scenario, &exchange);
                cases.push(Case { transcript: scenario.name.clone(), line: exchange.line, outcome });
            }
            player.client = None;
        }
        Ok(Conformance { cases, matches: player.matches })
    }
}

struct Player<'a> {
    deployment: &'a Deployment<'a>,
    client: Option<Client>,
    seen: Seen,
    unauthorized: Option<Unauthorized>,
    counts: [Count; 3],
    matches: u64,
    /// The exchanges in which the server did not reply in time.
    timeouts: usize,
}

/// Why an exchange did not pass.
enum Problem {
    Failed(String),
    /// The server closed the connection after an earlier reply.
    Closed,
    /// The workspace must wait for these seconds.
    Limited(u64),
    /// The window ended before the limit was reached.
    NewWindow,
}

impl From<String> for Problem {
    fn from(what: String) -> Self {
        Self::Failed(what)
    }
}

impl Player<'_> {
    /// Checks that the server is one, and that it accepts the keys.
    fn probe(&mut self) -> Result<(), DeploymentError> {
        let wrong = |what: String| DeploymentError::NotTheService(self.deployment.redacted(&what));
        let connect = || (self.deployment.connect)().map(Client::new).map_err(DeploymentError::Connect);
        let mut both = Vec::new();
        for _ in 0..2 {
            let mut client = connect()?;
            client.send(&self.deployment.invalid_request(None));
            let reply = client.reply().map_err(wrong)?;
            if headers::status(&reply.head) != Some(401) {
                return Err(wrong(self.deployment.excerpt(&reply)));
            }
            both.push(Unauthorized::of(&reply));
        }
        self.unauthorized = both.pop().zip(both.pop()).map(|(one, other)| one.without_varying(&other));
        let Deployment { workspace, limited, without_credits, .. } = self.deployment;
        let limited = limited.as_ref();
        for (name, key, counted_for) in [
            ("of the workspace with credits", Some(&workspace.key), Workspace::WithCredits),
            (
                "of the workspace with credits (its second one)",
                workspace.second.as_ref(),
                Workspace::WithCredits,
            ),
            ("of the limited workspace", limited.map(|keys| &keys.key), Workspace::Limited),
            (
                "of the limited workspace (its second one)",
                limited.and_then(|keys| keys.second.as_ref()),
                Workspace::Limited,
            ),
            ("of the workspace without credits", without_credits.as_ref(), Workspace::WithoutCredits),
        ] {
            let Some(key) = key else { continue };
            let mut client = connect()?;
            client.send(&self.deployment.invalid_request(Some(key)));
            let reply = client.reply().map_err(wrong)?;
            match headers::status(&reply.head) {
                Some(401) => return Err(DeploymentError::Key(name)),
                // A mistake in the count fails the exchanges after it.
                status => self.count(counted_for, &reply, status.unwrap_or_default()).unwrap_or_default(),
            }
        }
        Ok(())
    }

    fn play(&mut self, scenario: &Scenario, exchange: &Exchange<'_>) -> Outcome {
        if exchange.connects {
            self.client = None;
        }
        if self.timeouts >= TIMEOUTS_MAX {
            return Outcome::Skipped(format!("the server did not reply in time {TIMEOUTS_MAX} times"));
        }
        let (workspace, replacements) = match self.deployment.adapt(scenario, exchange) {
            Ok(adapted) => adapted,
            Err(reason) => return Outcome::Skipped(reason.to_owned()),
        };
        let (limit, admitted) = (self.counts[workspace as usize].limit(), exchange.admitted());
        if workspace == Workspace::Limited && limit > Some(LIMIT_MAX) {
            return Outcome::Skipped(format!("the limit of the limited workspace is over {LIMIT_MAX}"));
        }
        if limit.is_some_and(|limit| limit < admitted) {
            return Outcome::Skipped(format!("needs a limit of at least {admitted} requests"));
        }
        let mut repetitions = 0;
        loop {
            let is_reused = self.client.is_some();
            let problem = match self.attempt(exchange, workspace, &replacements) {
                Ok(()) => return Outcome::Passed,
                Err(problem) => problem,
            };
            self.client = None;
            match problem {
                Problem::Closed if is_reused => {}
                Problem::NewWindow if repetitions < REPETITIONS_MAX => repetitions += 1,
                Problem::Limited(seconds) if seconds <= WAIT_SECONDS_MAX && repetitions < REPETITIONS_MAX => {
                    repetitions += 1;
                    self.counts[workspace as usize] = Count::default();
                    (self.deployment.wait)(Duration::from_secs(seconds));
                }
                Problem::Failed(what) => {
                    let text = format!("{what}\nafter\n  {}", sent(exchange));
                    return Outcome::Failed(self.deployment.redacted(&text));
                }
                Problem::Closed => {
                    return Outcome::Failed("the connection was closed without a reply".to_owned());
                }
                Problem::NewWindow => {
                    return Outcome::Failed("requests over the limit are not refused".to_owned());
                }
                Problem::Limited(seconds) => {
                    return Outcome::Failed(format!(
                        "the workspace's limit admits no request for {seconds} s"
                    ));
                }
            }
        }
    }

    /// Plays an exchange once.
    fn attempt(
        &mut self,
        exchange: &Exchange<'_>,
        workspace: Workspace,
        replacements: &[Replacement],
    ) -> Result<(), Problem> {
        if workspace == Workspace::Limited {
            self.use_up_limit()?;
        }
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::new((self.deployment.connect)().map_err(|error| error.to_string())?),
        };
        if exchange.is_bytewise {
            client.send_bytewise();
        }
        let played = self.play_steps(&mut client, exchange, workspace, replacements);
        self.timeouts += usize::from(client.has_timed_out());
        played?;
        self.client = Some(client).filter(|client| !client.is_closed());
        Ok(())
    }

    fn play_steps(
        &mut self,
        client: &mut Client,
        exchange: &Exchange<'_>,
        workspace: Workspace,
        replacements: &[Replacement],
    ) -> Result<(), Problem> {
        for step in &exchange.steps {
            match step {
                Step::Send(bytes) => {
                    client.send(&request::adapted(bytes, replacements).map_err(str::to_owned)?)
                }
                Step::End => client.end(),
                Step::Closed => client.closed()?,
                Step::Expect(expected) => {
                    let reply = client.reply().map_err(|what| {
                        if client.is_closed() { Problem::Closed } else { Problem::Failed(what) }
                    })?;
                    self.compare(expected, &reply, workspace)?;
                }
                Step::Connect | Step::Bytewise | Step::Fails(_) | Step::Works => {}
            }
        }
        if !client.unread().is_empty() {
            return Err(format!("received more: {}", client.unread().escape_ascii()).into());
        }
        Ok(())
    }

    fn compare(&mut self, expected: &[u8], actual: &Reply, workspace: Workspace) -> Result<(), Problem> {
        let (expected_status, status) =
            (headers::status(expected), headers::status(&actual.head).unwrap_or_default());
        if status == 429 && expected_status != Some(429) {
            let seconds = client::header(&actual.head, "retry-after").and_then(|value| value.parse().ok());
            return Err(Problem::Limited(seconds.ok_or_else(|| "a 429 without retry-after".to_owned())?));
        }
        let counted = if is_counted(expected) { self.count(workspace, actual, status) } else { Ok(()) };
        if expected_status == Some(429) && status != 429 {
            return Err(Problem::NewWindow);
        }
        self.matches += u64::from(status == 200);
        let whole = [&actual.head[..], &actual.body].concat();
        if !text::is(&pattern(expected), &headers::comparable(&whole), &mut self.seen) {
            let (expected, actual) = (escaped(expected), self.deployment.excerpt(actual));
            return Err(format!("expected\n  {expected}\nreceived\n  {actual}").into());
        }
        counted?;
        if status == 401 {
            let difference =
                self.unauthorized.as_ref().and_then(|known| known.difference(&Unauthorized::of(actual)));
            if let Some(what) = difference {
                return Err(
                    format!("{what} differs from that of the reply to a request without a key").into()
                );
            }
        }
        Ok(())
    }

    /// Sends requests until the limited workspace's window admits no more.
    fn use_up_limit(&mut self) -> Result<(), Problem> {
        let key = self.deployment.key(Workspace::Limited, false, false).map_err(str::to_owned)?.to_owned();
        let request = self.deployment.invalid_request(Some(&key));
        let mut client = Client::new((self.deployment.connect)().map_err(|error| error.to_string())?);
        for _ in 0..LIMIT_MAX {
            client.send(&request);
            let reply = client.reply()?;
            let status = headers::status(&reply.head).unwrap_or_default();
            self.count(Workspace::Limited, &reply, status)?;
            if self.counts[Workspace::Limited as usize].remaining() == Some(0) {
                return Ok(());
            }
        }
        Err(format!("the limit of the limited workspace is not reached by {LIMIT_MAX} requests").into())
    }

    fn count(&mut self, workspace: Workspace, reply: &Reply, status: u16) -> Result<(), String> {
        self.counts[workspace as usize].next(reply, status)
    }
}

/// Returns what a reply must match: with any limit, count and profile.
fn pattern(expected: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(&headers::comparable(expected)).into_owned();
    let lines = text.split_inclusive('\n').map(|line| match line.split_once(": ") {
        Some((name @ ("ratelimit-limit" | "ratelimit-remaining"), _)) => format!("{name}: {{number}}\r\n"),
        _ => match line.split_once("https://www.linkedin.com/in/") {
            Some((before, after)) => {
                let after = after.find('"').map_or("", |at| &after[at..]);
                format!("{before}{{profile}}{after}")
            }
            None => line.to_owned(),
        },
    });
    lines.collect::<String>().into_bytes()
}

/// Formats the requests of an exchange as in the transcript, without keys and other emails.
fn sent(exchange: &Exchange<'_>) -> String {
    const BYTES_MAX: usize = 1000;
    let requests = exchange.requests().collect::<Vec<_>>().concat();
    escaped(&requests[..requests.len().min(BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{self, Read, Write};

    use super::*;
    use crate::client::Stream;
    use crate::deployment::WorkspaceKeys;

    /// A server that passes the check at the start, and then sends `reply`, or nothing if that is empty.
    struct Fake {
        reply: &'static str,
        unread: Vec<u8>,
    }

    impl Write for Fake {
        fn write(&mut self, request: &[u8]) -> io::Result<usize> {
            let is_probe = request.ends_with(b"content-length: 1\r\n\r\n{");
            let has_key = request.windows(7).any(|word| word == b"Bearer ");
            let reply = match (is_probe, has_key) {
                (true, false) => "401 Unauthorized",
                (true, true) => "400 Bad Request\r\nratelimit-limit: 3\r\nratelimit-remaining: 2",
                (false, _) => self.reply,
            };
            if !reply.is_empty() {
                self.unread = format!("HTTP/1.1 {reply}\r\ncontent-length: 0\r\n\r\n").into();
            }
            Ok(request.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Fake {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            match (&std::mem::take(&mut self.unread)[..]).read(bytes)? {
                0 => Err(io::ErrorKind::TimedOut.into()),
                count => Ok(count),
            }
        }
    }

    impl Stream for Fake {
        fn end(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the results of all transcripts, and how often the player waited.
    fn run(reply: &'static str) -> (Conformance, usize) {
        let waits = Cell::new(0);
        let deployment = Deployment {
            connect: &|| Ok(Box::new(Fake { reply, unread: Vec::new() })),
            host: "api.example".to_owned(),
            base_path: String::new(),
            workspace: WorkspaceKeys { key: "key".to_owned(), second: None },
            limited: None,
            without_credits: None,
            revoked: None,
            found: Some("ada.marlowe@gmail.com".to_owned()),
            not_found: None,
            wait: &|_| waits.set(waits.get() + 1),
        };
        (deployment.run(&crate::scenarios().unwrap()).unwrap(), waits.get())
    }

    /// Counts the exchanges that failed or were skipped for this reason.
    fn count(conformance: &Conformance, reason: &str) -> usize {
        let has_reason = |outcome: &_| matches!(outcome, Outcome::Failed(why) | Outcome::Skipped(why) if why.contains(reason));
        conformance.cases.iter().filter(|case| has_reason(&case.outcome)).count()
    }

    #[test]
    fn stops_after_three_timeouts() {
        let (conformance, _) = run("");
        assert_eq!(conformance.counts()[2], 3);
        assert!(count(&conformance, "did not reply in time 3 times") > 100);
    }

    #[test]
    fn repeats_an_exchange_three_times_and_skips_one_over_the_limit() {
        let (conformance, waits) = run("429 Too Many Requests\r\nretry-after: 1");
        let limited = count(&conformance, "admits no request for 1 s");
        assert!(limited > 100 && waits == 3 * limited, "{waits} {limited}");
        let (conformance, _) = run("404 Not Found\r\nratelimit-limit: 3\r\nratelimit-remaining: 2");
        assert_eq!(count(&conformance, "needs a limit of at least 4 requests"), 1);
    }
}
