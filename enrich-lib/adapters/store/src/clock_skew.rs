//! The difference between the clocks of a node and of a server that nodes share.

use std::fmt;
use std::time::Duration;

use enrich_lib::model::Timestamp;

use crate::sync::Mutex;

/// How far a node's clock is from a server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkew {
    /// Positive if the node's clock is ahead.
    ahead_ms: i64,
}

impl ClockSkew {
    /// The tolerated error of a clock, of a node or of a server. A difference of this size is worth a
    /// warning.
    pub const ERROR_MAX: Duration = Duration::from_secs(5);

    /// Returns the smallest difference that explains a request sent at `before` and answered at `after` by
    /// the node's clock, with the server's time in the reply. A slow reply therefore never looks like a wrong
    /// clock.
    pub fn from_reply(before: Timestamp, server: Timestamp, after: Timestamp) -> Self {
        let ms = |time: Timestamp| i64::try_from(time.unix_ms()).unwrap_or(i64::MAX);
        let (at_most, at_least) = (ms(after) - ms(server), ms(before) - ms(server));
        Self { ahead_ms: 0_i64.clamp(at_least.min(at_most), at_most) }
    }

    /// Returns the difference in milliseconds: positive if the node's clock is ahead, negative if it is
    /// behind.
    pub const fn ahead_ms(self) -> i64 {
        self.ahead_ms
    }

    /// Returns the size of the difference.
    pub const fn size(self) -> Duration {
        Duration::from_millis(self.ahead_ms.unsigned_abs())
    }
}

impl fmt::Display for ClockSkew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.ahead_ms < 0 { "behind" } else { "ahead" };
        write!(f, "{} ms {direction}", self.ahead_ms.unsigned_abs())
    }
}

/// The clock of a server, as last compared with the node's clock.
#[derive(Debug, Default)]
pub struct ServerClock(Mutex<Option<ClockSkew>>);

impl ServerClock {
    /// Compares the node's clock, which `now` reads, with the time that `request` gets from the server.
    pub async fn compare<E>(
        &self,
        now: impl Fn() -> Timestamp,
        request: impl Future<Output = Result<Timestamp, E>>,
    ) -> Result<ClockSkew, E> {
        let before = now();
        let server = request.await?;
        let skew = ClockSkew::from_reply(before, server, now());
        *self.0.lock() = Some(skew);
        Ok(skew)
    }

    /// Returns the last measured difference, or `None` if there is none yet.
    pub fn skew(&self) -> Option<ClockSkew> {
        *self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead_ms(before: u64, server: u64, after: u64) -> i64 {
        let [before, server, after] = [before, server, after].map(Timestamp::from_unix_ms);
        ClockSkew::from_reply(before, server, after).ahead_ms()
    }

    #[test]
    fn reply_time_is_not_skew() {
        assert_eq!(ahead_ms(1_000, 1_000, 1_000), 0);
        assert_eq!(ahead_ms(1_000, 1_001, 60_000), 0, "the reply was slow");
        assert_eq!(ahead_ms(1_000, 59_999, 60_000), 0, "the request was slow");
    }

    #[test]
    fn node_is_ahead_or_behind_by_the_smallest_possible_difference() {
        assert_eq!(ahead_ms(31_000, 1_000, 31_020), 30_000);
        assert_eq!(ahead_ms(1_000, 31_000, 1_020), -29_980);
        assert_eq!(ahead_ms(31_000, 1_000, 29_000), 28_000, "the clock was set back during the request");
    }

    #[test]
    fn shows_size_and_direction() {
        for (ahead_ms, shown) in [(30_000, "30000 ms ahead"), (-7, "7 ms behind"), (0, "0 ms ahead")] {
            let skew = ClockSkew { ahead_ms };
            assert_eq!(
                (skew.to_string().as_str(), skew.size().as_millis()),
                (shown, ahead_ms.unsigned_abs().into())
            );
        }
    }
}
