//! Limits on all resources that a client can consume.

use std::time::Duration;

use enrich_tower::BodyLimits;

/// Limits of one server. The defaults are safe for untrusted clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of open connections. Further connections wait in the listener's queue.
    pub connections_max: usize,
    /// Maximum number of concurrent HTTP/2 streams per connection.
    pub streams_max: u32,
    /// Maximum size of the request line and all header lines, in bytes.
    pub head_bytes_max: usize,
    /// Maximum number of header lines in a request.
    pub head_lines_max: usize,
    /// Limits on a request's body.
    pub body: BodyLimits,
    /// Timeout of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Timeout of a request's head. The first head is timed from the start of the connection, each later one from its own
    /// first byte.
    pub head_timeout: Duration,
    /// Timeout of an idle connection. It exceeds the 60 s that most load balancers use, because the load balancer should be
    /// the side that closes.
    pub idle_timeout: Duration,
    /// Timeout for the client to close its half of the connection.
    pub close_timeout: Duration,
    /// Timeout of requests and lookups in flight during a graceful shutdown.
    pub shutdown_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            streams_max: 64,
            head_bytes_max: 16 * 1_024,
            head_lines_max: 64,
            body: BodyLimits::default(),
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            close_timeout: Duration::from_secs(5),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}
