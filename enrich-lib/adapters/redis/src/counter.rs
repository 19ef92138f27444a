//! The Redis key of a window's counter, and the script that increments it.

use std::sync::LazyLock;
use std::time::Duration;

use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::window::Window;
use redis::aio::ConnectionLike;
use redis::{RedisResult, Script};

use crate::error::WindowStoreError;

/// The tolerated error of a clock, of a node or of Redis.
const CLOCK_ERROR_MAX: Duration = Duration::from_secs(5);

/// How long before its window opens by Redis's clock a request is counted. The node's clock may be fast and
/// Redis's slow.
const LEAD_MAX: Duration = CLOCK_ERROR_MAX.saturating_mul(2);

/// The length of the window that a check counts in.
const CHECKED_WINDOW: Duration = Duration::from_secs(60);

/// Increments a counter and sets its expiry. Redis deletes a key with an expiry in the past at once, which
/// would make every request the first one, and a window that no other node uses yet would admit its limit in
/// addition to theirs. The script therefore fails if Redis's clock is past the expiry or before the earliest
/// count. `SET` with `PXAT` creates a counter and its expiry in one step, so that a user without the
/// `pexpireat` right cannot leave a counter without expiry. A counter that another program left without
/// expiry receives one.
static COUNT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local late_ms = now_ms - ARGV[2]
if late_ms >= 0 then
  return redis.error_reply(string.format('LATE %.0f', late_ms))
end
local early_ms = ARGV[3] - now_ms
if early_ms > 0 then
  return redis.error_reply(string.format('EARLY %.0f', early_ms))
end
local left_ms = redis.call('PTTL', KEYS[1])
if left_ms == -2 then
  redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])
  return tonumber(ARGV[1])
end
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if left_ms == -1 then
  redis.call('PEXPIREAT', KEYS[1], ARGV[2])
end
return count",
    )
});

/// The counter of a window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Counter {
    workspace: WorkspaceId,
    number: u64,
    closes_at_ms: u64,
    counts_from_ms: u64,
    expires_at_ms: u64,
}

impl Counter {
    /// Creates the counter of `window`.
    pub(crate) fn of(window: &Window) -> Self {
        Self {
            workspace: window.workspace().clone(),
            number: window.number(),
            closes_at_ms: window.closes_at().unix_ms(),
            counts_from_ms: (window.opens_at() - LEAD_MAX).unix_ms(),
            expires_at_ms: (window.expires_at() + CLOCK_ERROR_MAX).unix_ms(),
        }
    }

    /// Creates a counter of no window. A count in it fails if the node's time `now` and Redis's clock differ so much
    /// that no request in a window of [`CHECKED_WINDOW`] can be counted.
    pub(crate) fn of_check(now: Timestamp) -> Self {
        let workspace = "check".parse().expect("a valid name");
        let counts_from_ms = (now - CHECKED_WINDOW - LEAD_MAX).unix_ms();
        let expires_at_ms = (now + CHECKED_WINDOW + Window::LATE_MAX + CLOCK_ERROR_MAX).unix_ms();
        Self { workspace, number: 0, closes_at_ms: 0, counts_from_ms, expires_at_ms }
    }

    /// Returns the Redis key. The key contains the end of the window because windows of different lengths may
    /// have the same number. The braces (a hash tag) keep a workspace's counters on one Cluster node.
    fn key(&self) -> String {
        format!("enrich:{{{}}}:{}:{}", self.workspace, self.closes_at_ms, self.number)
    }

    /// Adds `requests` to the counter and returns the new count. Takes one round trip, or three if the server
    /// has not cached the script. The server has not run the script in that case.
    pub(crate) async fn count(
        &self,
        requests: u64,
        connection: &mut impl ConnectionLike,
    ) -> Result<u64, WindowStoreError> {
        let mut counting = COUNT.key(self.key());
        let counting = counting.arg(requests).arg(self.expires_at_ms).arg(self.counts_from_ms);
        let counted: RedisResult<i64> = counting.invoke_async(connection).await;
        let count = counted.map_err(|error| WindowStoreError::of(&error))?;
        u64::try_from(count).ok().filter(|count| *count >= requests).ok_or(WindowStoreError::ForeignKey)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use enrich_lib::window::Quota;

    /// Nodes of different versions share counters, so the key format must never change.
    #[test]
    fn key_format_is_stable() {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let counter = Counter::of(&Quota::default().window(&"demo".parse().unwrap(), now));
        assert_eq!(counter.key(), "enrich:{demo}:1700000053152:28333334");
        assert_eq!(counter.expires_at_ms, 1_700_000_068_152, "5 s after the window's own");
        assert_eq!(counter.counts_from_ms, 1_699_999_983_152, "10 s before the window opens");
    }

    #[test]
    fn windows_of_different_lengths_have_different_keys() {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let demo = "demo".parse().unwrap();
        let windows = (60..70).chain(86_391..=86_400).map(|s| Quota::new(5, s).unwrap().window(&demo, now));
        let (numbers, keys): (BTreeSet<_>, BTreeSet<_>) =
            windows.map(|window| (window.number(), Counter::of(&window).key())).unzip();
        assert!(numbers.len() < 20, "some have one number");
        assert_eq!(keys.len(), 20);
    }

    #[test]
    fn raised_limit_keeps_counter() {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let [low, high] =
            [5, 9].map(|limit| Quota::new(limit, 60).unwrap().window(&"demo".parse().unwrap(), now));
        assert_eq!(Counter::of(&low), Counter::of(&high));
    }
}
