//! The counts in the replies of one workspace.

use crate::client::{Reply, header};

/// The last count that a workspace's replies contained.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count(Option<Window>);

#[derive(Clone, Copy, Debug)]
struct Window {
    limit: u64,
    remaining: u64,
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

    /// Takes the count of the next reply. It must be one less than before, or that of a new window.
    pub(crate) fn next(&mut self, reply: &Reply, status: u16) -> Result<(), String> {
        let number = |name: &str| {
            let value = header(&reply.head, name).and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("no integer in the header {name}"))
        };
        let (limit, remaining): (u64, u64) = (number("ratelimit-limit")?, number("ratelimit-remaining")?);
        let (before, is_limited) = (self.0.replace(Window { limit, remaining }), status == 429);
        if is_limited && remaining > 0 {
            return Err(format!("a 429 with ratelimit-remaining: {remaining}"));
        }
        if !is_limited && remaining + 1 == limit {
            return Ok(()); // the first request of a window
        }
        match before {
            None if remaining < limit => Ok(()),
            Some(before) if is_limited && before.remaining == 0 => Ok(()),
            Some(before) if is_limited => {
                Err(format!("a 429 although {} requests remained", before.remaining))
            }
            Some(before) if before.limit == limit && before.remaining == remaining + 1 => Ok(()),
            Some(Window { remaining: 0, .. }) => Err("a request over the limit was not refused".to_owned()),
            Some(before) => Err(format!(
                "ratelimit-remaining: {remaining} of {limit} after {}; nothing else may use the workspace",
                before.remaining
            )),
            None => Err(format!("ratelimit-remaining: {remaining} of {limit}")),
        }
    }
}
