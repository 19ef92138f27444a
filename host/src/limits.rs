//! Limits on all resources that a client can consume.

use std::time::Duration;

use enrich_tower::BodyLimits;

/// Limits of one server. The defaults are safe for untrusted clients.
///
/// Timeouts of connections are never early and up to 100 ms late, more on an overloaded machine.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of open connections. A further connection replaces one without a lookup in flight: first
    /// those that never sent a valid key, then the one that has been idle for the longest time, then the one
    /// whose requests have been without a body for the longest time. If there is none, it waits.
    pub connections_max: usize,
    /// Maximum number of open connections per address. Further connections are closed at once. The addresses
    /// of one IPv6 network (/64) count together, and loopback addresses have no limit.
    pub connections_per_address_max: usize,
    /// Maximum number of concurrent HTTP/2 streams per connection.
    pub streams_max: u32,
    /// Maximum size of the request line and all header lines, in bytes. On HTTP/1, a smaller value counts as 8,192.
    pub head_bytes_max: usize,
    /// Maximum number of header lines in a request. On HTTP/1, a larger value counts as 24,576.
    pub head_lines_max: usize,
    /// Limits on a request's body.
    pub body: BodyLimits,
    /// Timeout of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Timeout of a request's head. The first head is timed from the start of the connection, each later one
    /// from its own first byte. A later head on HTTP/2 counts as idle time.
    pub head_timeout: Duration,
    /// Timeout of an idle connection. It exceeds the 60 s that most load balancers use, because the load
    /// balancer should be the side that closes.
    pub idle_timeout: Duration,
    /// Timeout for the client to close its half of the connection.
    pub close_timeout: Duration,
    /// Timeout of a lookup, without the time to read its body. The connection is then closed without a reply,
    /// because it is unknown whether credits are spent, and the lookup completes in the background. The
    /// timeout must exceed the sum of all timeouts of the ports.
    pub lookup_timeout: Duration,
    /// Time for which a graceful shutdown still accepts connections and replies to requests, with
    /// `Connection: close`. If another process accepts the connections, it ends early when none is open.
    pub drain_timeout: Duration,
    /// Timeout of requests and lookups in flight during a graceful shutdown, after `drain_timeout`.
    pub shutdown_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_address_max: 5_000,
            streams_max: 64,
            head_bytes_max: 16 * 1_024,
            head_lines_max: 64,
            body: BodyLimits::default(),
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            close_timeout: Duration::from_secs(5),
            lookup_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(15),
        }
    }
}
