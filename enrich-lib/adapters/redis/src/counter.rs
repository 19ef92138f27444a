//! One counter in Redis: its name, and the script that counts it up.

use std::sync::LazyLock;
use std::time::Duration;

use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Window;
use redis::aio::ConnectionLike;
use redis::{RedisResult, Script};

use crate::fault::RedisFault;

/// How far Redis's clock may be ahead of the right time: as far as a node's.
const AHEAD_MAX: Duration = Duration::from_secs(5);

/// A key that is past its time is deleted at once: every request would be the first. So the script fails where Redis's
/// clock says that the counter's time is over. A counter is made with its end in one step, so that none is left without one
/// by a user who lacks a right; one that another program left so gets its own.
static COUNT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local time = redis.call('TIME')
local late_ms = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[2]
if late_ms >= 0 then
  return redis.error_reply(string.format('CLOCK %.0f', late_ms))
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

/// A window's counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Counter {
    workspace: WorkspaceId,
    number: u64,
    closes_at_ms: u64,
    forget_at_ms: u64,
}

impl Counter {
    /// The counter of `window`.
    pub(crate) fn of(window: &Window) -> Self {
        Self {
            workspace: window.workspace().clone(),
            number: window.number(),
            closes_at_ms: window.closes_at().unix_ms(),
            forget_at_ms: (window.forget_at() + AHEAD_MAX).unix_ms(),
        }
    }

    /// Its name. Its end is a part of it: where a quota's length changes, two windows may have one number. The braces keep
    /// a workspace's counters on one node of a Cluster.
    fn key(&self) -> String {
        format!("enrich:{{{}}}:{}:{}", self.workspace, self.closes_at_ms, self.number)
    }

    /// Counts `requests` more and returns the new count: one round trip, or three where the server does not know the
    /// script yet, which it then has not run.
    pub(crate) async fn count(
        &self,
        requests: u64,
        connection: &mut impl ConnectionLike,
    ) -> Result<u64, RedisFault> {
        let mut counting = COUNT.key(self.key());
        let counted: RedisResult<i64> =
            counting.arg(requests).arg(self.forget_at_ms).invoke_async(connection).await;
        let count = counted.map_err(|error| RedisFault::of(&error))?;
        u64::try_from(count).ok().filter(|count| *count >= requests).ok_or(RedisFault::ForeignKey)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use enrich_lib::model::Timestamp;
    use enrich_lib::window::Quota;

    /// Nodes of several versions share counters: these names are for ever.
    #[test]
    fn every_version_names_the_same_counters() {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let counter = Counter::of(&Quota::default().window(&"demo".parse().unwrap(), now));
        assert_eq!(counter.key(), "enrich:{demo}:1700000053152:28333334");
        assert_eq!(counter.forget_at_ms, 1_700_000_068_152, "5 s after the window's own");
    }

    #[test]
    fn windows_of_another_length_have_other_counters() {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let demo = "demo".parse().unwrap();
        let windows = (60..70).chain(86_391..=86_400).map(|s| Quota::new(5, s).unwrap().window(&demo, now));
        let (numbers, keys): (BTreeSet<_>, BTreeSet<_>) =
            windows.map(|window| (window.number(), Counter::of(&window).key())).unzip();
        assert!(numbers.len() < 20, "some have one number");
        assert_eq!(keys.len(), 20);
    }

    #[test]
    fn a_limit_that_is_raised_counts_on() {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let [low, high] =
            [5, 9].map(|limit| Quota::new(limit, 60).unwrap().window(&"demo".parse().unwrap(), now));
        assert_eq!(Counter::of(&low), Counter::of(&high));
    }
}
