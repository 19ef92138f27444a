//! Limits on everything that a stranger can make grow.

use std::time::Duration;

use enrich_tower::BodyLimits;

/// What one `run` allows. The defaults hold against strangers.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time; the next one waits in the listener's queue.
    pub connections_max: usize,
    /// HTTP/2: requests at a time on one connection.
    pub streams_max: u32,
    /// The request line and all header lines, in bytes.
    pub head_bytes_max: usize,
    /// Header lines in a request.
    pub head_lines_max: usize,
    /// A request's body.
    pub body: BodyLimits,
    /// For the TLS handshake.
    pub handshake_time_max: Duration,
    /// For a request's head: the first from the connection's start, each later one from its own first byte.
    pub head_time_max: Duration,
    /// Between two requests on a connection. Load balancers mostly wait 60 s: whoever closes first should be they.
    pub idle_time_max: Duration,
    /// For the client to take note that the connection ends.
    pub close_time_max: Duration,
    /// For requests in flight once the host is told to stop.
    pub shutdown_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            streams_max: 64,
            head_bytes_max: 16 * 1_024,
            head_lines_max: 64,
            body: BodyLimits::default(),
            handshake_time_max: Duration::from_secs(10),
            head_time_max: Duration::from_secs(10),
            idle_time_max: Duration::from_secs(75),
            close_time_max: Duration::from_secs(5),
            shutdown_time_max: Duration::from_secs(10),
        }
    }
}
