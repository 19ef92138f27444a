//! Timeouts and backoff.

use std::time::Duration;

/// The timeouts of counts and connections, and the backoff while Redis is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisPolicy {
    /// The timeout of a count. A count that exceeds it fails, and its connection to a single server is not reused.
    pub timeout: Duration,
    /// The timeout for connecting. Counts wait for a connection no longer than their timeout.
    pub connect_timeout: Duration,
    /// The upper bound of the first pause between attempts to connect.
    pub pause_first: Duration,
    /// The upper bound of every pause.
    pub pause_max: Duration,
}

impl Default for RedisPolicy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(100),
            connect_timeout: Duration::from_secs(1),
            pause_first: Duration::from_millis(20),
            pause_max: Duration::from_secs(1),
        }
    }
}
