//! Patience.

use std::time::Duration;

/// How long Redis may take, and how often it is tried when it is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisPolicy {
    /// A count that takes longer fails, and the connection it was made on is not used again.
    pub deadline: Duration,
    /// A connection that takes longer to be made is given up. Counts wait for one no longer than their deadline.
    pub connect_within: Duration,
    /// The ceiling of the first pause between two tries to connect.
    pub pause_first: Duration,
    /// The ceiling of every pause.
    pub pause_max: Duration,
}

impl Default for RedisPolicy {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(100),
            connect_within: Duration::from_secs(1),
            pause_first: Duration::from_millis(20),
            pause_max: Duration::from_secs(1),
        }
    }
}
