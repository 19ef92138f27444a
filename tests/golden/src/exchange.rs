//! The exchanges of a transcript: requests that are sent together, and their replies.

use crate::client::header;
use crate::scenario::{Scenario, Step};

/// One or more requests and all of their replies. Exchanges of a transcript do not depend on each other,
/// except by the state of the workspace.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    /// The line of the first request.
    pub(crate) line: usize,
    /// Whether the client connects before.
    pub(crate) connects: bool,
    /// Whether the client sends each byte separately.
    pub(crate) is_bytewise: bool,
    /// The lines that the client sends and receives, without `connect`.
    pub(crate) steps: Vec<&'a Step>,
}

impl<'a> Exchange<'a> {
    /// Divides a transcript without failing ports.
    pub(crate) fn all(scenario: &'a Scenario) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let (mut connects, mut is_bytewise) = (false, false);
        for (line, step) in &scenario.steps {
            match step {
                Step::Connect => (connects, is_bytewise) = (true, false),
                Step::Bytewise => is_bytewise = true,
                Step::Fails(_) | Step::Works => {}
                Step::Send(_) | Step::Expect(_) | Step::End | Step::Closed => {
                    let begins = matches!(step, Step::Send(_)) && all.last().is_none_or(Self::is_complete);
                    match all.last_mut() {
                        Some(last) if !begins && !connects => last.steps.push(step),
                        _ => {
                            all.push(Self { line: *line, connects, is_bytewise, steps: vec![step] });
                            connects = false;
                        }
                    }
                }
            }
        }
        all
    }

    /// Iterates over the expected replies.
    pub(crate) fn replies(&self) -> impl Iterator<Item = &'a [u8]> {
        self.steps.iter().filter_map(|step| match step {
            Step::Expect(reply) => Some(&reply[..]),
            _ => None,
        })
    }

    /// Iterates over the bytes that the client sends.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &'a [u8]> {
        self.steps.iter().filter_map(|step| match step {
            Step::Send(request) => Some(&request[..]),
            _ => None,
        })
    }

    /// Returns whether a reply with this status is expected.
    pub(crate) fn expects(&self, status: u16) -> bool {
        self.replies().any(|reply| crate::headers::status(reply) == Some(status))
    }

    /// Returns how many requests the limit must admit.
    pub(crate) fn admitted(&self) -> u64 {
        let counted = self.replies().filter(|reply| is_counted(reply));
        counted.filter(|reply| crate::headers::status(reply) != Some(429)).count() as u64
    }

    /// Returns whether the next request begins another exchange. A request that waits for `100 Continue` goes
    /// on after it.
    fn is_complete(&self) -> bool {
        match self.steps.last() {
            Some(Step::Expect(reply)) => !reply.starts_with(b"HTTP/1.1 1"),
            Some(Step::Closed) => true,
            _ => false,
        }
    }
}

/// Returns whether the reply counts a request.
pub(crate) fn is_counted(reply: &[u8]) -> bool {
    header(reply, "ratelimit-limit").is_some()
}
