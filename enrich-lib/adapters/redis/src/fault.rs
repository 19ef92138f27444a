//! The vocabulary of faults: why a request was not counted, or may have been.

use std::time::Duration;

use redis::{ErrorKind, RedisError};
use thiserror::Error;

/// Why a count failed. It travels inside a [`PortError`](enrich_lib::refusal::PortError).
///
/// It has no text of the server's but its error code, and nothing of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RedisFault {
    /// There is no connection. Nothing was counted.
    #[error("Redis can't be reached: {0}")]
    Unreachable(String),
    /// The connection ended while a count was under way. It may have been made.
    #[error("the connection to Redis ended before it answered: {0}")]
    Disconnected(String),
    /// No answer before the deadline. The count may have been made.
    #[error("Redis did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// Wrong password, unknown user, or a password is needed.
    #[error("Redis refuses our user or password: look into the URL, and `ACL LIST`")]
    LoginRefused,
    /// The user lacks a right.
    #[error("Redis does not let our user count: it needs the rights {RIGHTS}")]
    NotAllowed,
    /// The server is a replica, as after a failover.
    #[error("Redis is a replica and takes no writes")]
    ReadOnly,
    /// The server starts, fails over or is blocked, and says so by this code.
    #[error("Redis is not ready: {0}")]
    NotReady(String),
    /// The server's memory is used up.
    #[error("Redis is full: give it more `maxmemory`")]
    Full,
    /// By Redis's clock the window was over so long ago that its counter would be forgotten at once.
    #[error("the clocks differ: by Redis's, this window's counter was to be forgotten {0} ms ago")]
    ClocksDiffer(u64),
    /// What is under the counter's key is no counter.
    #[error(
        "what Redis has under the counter's key is no counter: does another program write `enrich:` keys?"
    )]
    ForeignKey,
    /// Any other error that the server answers with, by its code.
    #[error("Redis answered with the error {0}")]
    Refused(String),
    /// An answer that is no count.
    #[error("Redis's answer makes no sense")]
    BadAnswer,
    /// Not asked: the last try to connect failed, and the next is not due yet or still under way.
    #[error("windows are not reachable: {0}")]
    Resting(Box<RedisFault>),
    /// The program ends, and its counts with it.
    #[error("the count was given up")]
    GivenUp,
}

/// What a user has to be allowed, in the words of `ACL SETUSER`.
pub(crate) const RIGHTS: &str = "~enrich:* +ping +evalsha +script|load +time +pttl +set +incrby +pexpireat";

impl RedisFault {
    /// Whether the connection may be the reason: another one could find a server that works.
    pub(crate) fn is_the_connections(&self) -> bool {
        !matches!(self, Self::NotAllowed | Self::Full | Self::ClocksDiffer(_) | Self::ForeignKey)
    }

    /// What went wrong before a connection was there.
    pub(crate) fn of_connecting(error: &RedisError) -> Self {
        match Self::of(error) {
            Self::Disconnected(what) => Self::Unreachable(what),
            fault => fault,
        }
    }

    /// What went wrong on a connection.
    pub(crate) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::AuthenticationFailed => return Self::LoginRefused,
            ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => {
                return Self::Disconnected(error.to_string());
            }
            _ => {}
        }
        let detail = error.detail().unwrap_or_default();
        match error.code() {
            Some("WRONGPASS" | "NOAUTH") => Self::LoginRefused,
            Some("NOPERM") => Self::NotAllowed,
            Some("READONLY") => Self::ReadOnly,
            Some(code @ ("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY")) => {
                Self::NotReady(code.to_owned())
            }
            Some("OOM") => Self::Full,
            Some("CLOCK") => Self::ClocksDiffer(detail.parse().unwrap_or_default()),
            Some("WRONGTYPE") => Self::ForeignKey,
            // Of a command in the script.
            Some("ERR") if detail.contains("user executing the script") => Self::NotAllowed,
            // Of INCRBY, on a text.
            Some("ERR") if detail.contains("not an integer") => Self::ForeignKey,
            Some(code) => Self::Refused(code.to_owned()),
            None => Self::BadAnswer,
        }
    }
}
