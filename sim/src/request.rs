//! The requests of a run's clients.

use std::fmt;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::clock::random_ms;
use crate::keys::KeyOf;
use crate::topology::node_name;

/// One request of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedRequest {
    /// How long the client waits before the request.
    pub pause: Duration,
    /// The node to send the request to, counted from 0.
    pub node: usize,
    /// The kind of request.
    pub kind: RequestKind,
    /// The key, unless it is that of the client.
    pub key: Option<KeyOf>,
    /// The number of a person that other requests may look up as well, or `None` for a person unique to this
    /// request.
    pub shared_person: Option<usize>,
    /// The number of the idempotency key, which other requests have as well.
    pub idempotency_key: Option<usize>,
    /// The HTTP version.
    pub http: HttpVersion,
    /// If true, reuse the connection of the client's previous request if it is still open.
    pub reuses_connection: bool,
    /// How long to wait for the reply before hanging up.
    pub timeout: Duration,
}

/// The HTTP version.
///
/// The host detects that a client hung up immediately on HTTP/2, but only when it writes the reply on HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpVersion {
    /// HTTP/1.1
    Http1,
    /// HTTP/2
    Http2,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RequestKind {
    /// A person with a profile.
    Known,
    /// A person without a profile.
    Unknown,
    /// A person with a profile who opted out.
    OptedOut,
    /// An invalid email.
    InvalidEmail,
    /// A role account, which is not looked up.
    RoleAccount,
    /// An address that determines the reply to a test key, with its index among all of them.
    TestAddress(usize),
    /// A body with an unknown field.
    UnknownField,
    /// A person with a profile, without an API key.
    NoKey,
    /// A person with a profile, with a well-formed but unknown API key.
    UnknownKey,
}

/// The addresses at `enrich.test`: what is before the `@`, and the outcome with a test key.
pub(crate) const TEST_ADDRESSES: [(&str, &str); 11] = [
    ("found", "found"),
    ("not-found", "not_found"),
    ("invalid", "invalid_email"),
    ("unsupported", "unsupported_email"),
    ("no-credits", "insufficient_credits"),
    ("limited", "rate_limited"),
    ("failed", "server_error"),
    ("lookup-failed", "lookup_error"),
    ("limit-unknown", "rate_limit_unavailable"),
    (SLOW, "found"),
    ("any-other", "not_found"),
];

/// The address whose reply is sent after [`SLOW_TIME`].
pub(crate) const SLOW: &str = "slow";
pub(crate) const SLOW_TIME: Duration = Duration::from_secs(5);

impl HttpVersion {
    pub(crate) fn draw(rng: &mut StdRng) -> Self {
        if rng.random_bool(0.5) { Self::Http1 } else { Self::Http2 }
    }
}

impl fmt::Display for PlannedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pause, node, kind, http, timeout, .. } = self;
        let person = self.shared_person.map_or(String::new(), |number| format!(" {number}"));
        let key = self.idempotency_key.map_or(String::new(), |number| format!(" with key {number}"));
        let connection = if self.reuses_connection { "an open connection" } else { "a new connection" };
        write!(
            f,
            "after {pause:?} to {}: {kind:?}{person}{key}, {http:?} on {connection}, waits {timeout:?}",
            node_name(*node)
        )
    }
}

impl PlannedRequest {
    /// Creates a request for a person of its own, on a connection of its own.
    pub(crate) fn new(
        pause: Duration,
        node: usize,
        kind: RequestKind,
        http: HttpVersion,
        timeout: Duration,
    ) -> Self {
        let (key, shared_person, idempotency_key, reuses_connection) = (None, None, None, false);
        Self { pause, node, kind, key, shared_person, idempotency_key, http, reuses_connection, timeout }
    }

    /// Draws a request of a crowd to `node`.
    pub(crate) fn draw_of_crowd(rng: &mut StdRng, node: usize) -> Self {
        let (pause, http) = (Duration::from_secs(1) + random_ms(rng, 0..200), HttpVersion::draw(rng));
        Self::new(pause, node, RequestKind::Known, http, Duration::from_secs(15))
    }

    /// Draws whether the request has a key that operators create, or an address for test keys.
    pub(crate) fn draw_key(&mut self, rng: &mut StdRng) {
        let test_key = if rng.random_bool(0.7) { KeyOf::Test } else { KeyOf::TestNew };
        self.key = match rng.random_range(0..10) {
            0 | 1 => Some(KeyOf::ClientsNew),
            2..5 => Some(test_key),
            _ => None,
        };
        if rng.random_bool(if self.key == Some(test_key) { 0.8 } else { 0.05 }) {
            self.kind = RequestKind::TestAddress(rng.random_range(0..TEST_ADDRESSES.len()));
            (self.shared_person, self.idempotency_key) = (None, None);
        }
    }

    /// Draws a request. `fixed` is the client's fixed node and HTTP version, if it has them.
    pub(crate) fn draw(rng: &mut StdRng, nodes: usize, fixed: Option<(usize, HttpVersion)>) -> Self {
        const REFUSED: [RequestKind; 5] = [
            RequestKind::InvalidEmail,
            RequestKind::RoleAccount,
            RequestKind::UnknownField,
            RequestKind::NoKey,
            RequestKind::UnknownKey,
        ];
        let kind = match rng.random_range(0..10) {
            0..6 => RequestKind::Known,
            6 => RequestKind::Unknown,
            7 => *[RequestKind::Unknown, RequestKind::OptedOut].choose(rng).expect("not empty"),
            _ => *REFUSED.choose(rng).expect("not empty"),
        };
        // Refused requests must not share a person: invariant 3 checks that the vendor never receives a
        // request for that person.
        let can_share = matches!(kind, RequestKind::Known | RequestKind::Unknown | RequestKind::OptedOut);
        let shared_person = (can_share && rng.random_bool(0.4)).then(|| rng.random_range(0..2));
        let timeout_ms = if rng.random_bool(0.2) { 1..1_000 } else { 1_000..15_000 };
        let (node, http) = fixed.unwrap_or_else(|| (rng.random_range(0..nodes), HttpVersion::draw(rng)));
        Self {
            pause: random_ms(rng, 0..1_000),
            node,
            kind,
            key: None,
            shared_person,
            idempotency_key: (shared_person.is_some() && rng.random_bool(0.5))
                .then(|| rng.random_range(0..2)),
            http,
            reuses_connection: rng.random_bool(0.8),
            timeout: random_ms(rng, timeout_ms),
        }
    }

    /// Multiplies the pause before the request.
    pub(crate) fn slowed(self, factor: u32) -> Self {
        Self { pause: self.pause * factor, ..self }
    }
}
