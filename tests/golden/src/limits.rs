//! The counts in the replies of one workspace.

use std::time::{Duration, Instant};

use crate::client::{Reply, header};

/// A window may end this many seconds early: its `RateLimit-Reset` is rounded up, and arrives later.
const RESET_TOLERANCE: u64 = 2;

/// The last count that a workspace's replies contained.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count(Option<Window>);

#[derive(Clone, Copy, Debug)]
struct Window {
    limit: u64,
    remaining: u64,
    /// When a reply can be the first one of the next window.
    ends_at: Instant,
}

impl Count {
    /// Returns how many requests the window still admits, as far as known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.0.map(|window| window.remaining)
    }

    /// Returns the limit, if known.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.0.map(|window| window.limit)
    }

    /// Takes the count of the next reply. It must be one less than before, or begin a window that is due.
    pub(crate) fn next(&mut self, reply: &Reply, status: u16) -> Result<(), String> {
        let number = |name: &str| -> Result<u64, String> {
            let value = header(&reply.head, name).and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("no integer in the header {name}"))
        };
        let (limit, remaining) = (number("ratelimit-limit")?, number("ratelimit-remaining")?);
        // Replies without a valid reset differ from the transcript.
        let reset = number("ratelimit-reset").unwrap_or(0).min(86_400).saturating_sub(RESET_TOLERANCE);
        let ends_at = Instant::now() + Duration::from_secs(reset);
        let before = self.0.replace(Window { limit, remaining, ends_at });
        let is_limited = status == 429;
        if is_limited && remaining > 0 {
            return Err(format!("a 429 with ratelimit-remaining: {remaining}"));
        }
        match before {
            None if remaining < limit => Ok(()),
            Some(before) if !is_limited && remaining + 1 == limit && before.ends_at <= Instant::now() => {
                Ok(())
            }
            Some(before) if is_limited && before.remaining > 0 => {
                Err(format!("a 429 although {} requests remained", before.remaining))
            }
            Some(before) if before.limit != limit => {
                Err(format!("ratelimit-limit: {limit} after {}", before.limit))
            }
            Some(_) if is_limited => Ok(()),
            Some(before) if before.remaining == remaining + 1 => Ok(()),
            Some(Window { remaining: 0, .. }) => Err("a request over the limit was not refused".to_owned()),
            Some(before) => Err(format!(
                "ratelimit-remaining: {remaining} of {limit} after {}; nothing else may use the workspace",
                before.remaining
            )),
            None => Err(format!("ratelimit-remaining: {remaining} of {limit}")),
        }
    }
}
