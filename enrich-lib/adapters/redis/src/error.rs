//! Errors of counting a request.

use std::time::Duration;

use redis::{ErrorKind, RedisError};
use thiserror::Error;

/// The reason why a count failed, wrapped in a [`PortError`](enrich_lib::refusal::PortError).
///
/// It contains no text from the server except its error code, and no part of the URL.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WindowStoreError {
    /// Connecting failed. Nothing was counted.
    #[error("cannot connect to Redis: {0}; check that it runs and that the URL is correct")]
    Unreachable(String),
    /// The connection closed during a count. The count may have been made.
    #[error("the connection to Redis closed before the reply: {0}")]
    Disconnected(String),
    /// The server did not reply within the timeout. The count may have been made.
    #[error("Redis did not reply within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The password is wrong, the user is unknown, or a password is required.
    #[error("Redis rejected the user or password; check the URL and `ACL LIST`")]
    AuthenticationFailed,
    /// The user lacks a permission.
    #[error("the Redis user lacks permissions; it needs {RIGHTS}")]
    NotAllowed,
    /// The server is a replica, for example after a failover.
    #[error("Redis is a read-only replica; the URL must name the primary")]
    ReadOnly,
    /// The server has no database with the number in the URL.
    #[error(
        "Redis does not have this database; change the number in the path of the URL, or raise `databases`"
    )]
    NoDatabase,
    /// The URL is that of a Cluster, and the server is not a part of one.
    #[error("this Redis server is not part of a Cluster; use redis:// or rediss://")]
    NoCluster,
    /// The server is starting, failing over or blocked. Contains its error code.
    #[error("Redis is not ready: {0}")]
    NotReady(String),
    /// The server has no connection left.
    #[error("Redis has no connection left; raise its `maxclients`")]
    TooManyClients,
    /// The server has reached its memory limit.
    #[error("Redis is out of memory; raise its `maxmemory`")]
    OutOfMemory,
    /// By Redis's clock, the window ended so long ago that its counter would expire at once. Contains how far
    /// past, in milliseconds.
    #[error(
        "the clocks differ: by Redis's clock, the counter of this window expired {0} ms ago; synchronize the clocks"
    )]
    WindowExpired(u64),
    /// By Redis's clock, the window opens so much later that the other nodes do not use it yet. Contains when
    /// its requests can be counted, in milliseconds from now.
    #[error(
        "the clocks differ: by Redis's clock, requests of this window are counted in {0} ms at the earliest; synchronize the clocks"
    )]
    WindowAhead(u64),
    /// The counter's key contains a value that is not a counter.
    #[error(
        "the value of an `enrich:` key in Redis is not a counter; check whether another program writes these keys"
    )]
    ForeignKey,
    /// Any other error of the server. Contains its error code.
    #[error("Redis returned the error {0}")]
    ErrorReply(String),
    /// The reply is not a count.
    #[error("Redis sent an unexpected reply")]
    UnexpectedReply,
    /// No request was sent: the last attempt to connect failed, and the next one is not yet due or still in
    /// progress.
    #[error("Redis is unavailable; the last attempt to connect failed: {0}")]
    Unavailable(Box<WindowStoreError>),
    /// The task that makes the count ended, for example because the program is shutting down.
    #[error("the count was aborted")]
    Aborted,
}

/// The permissions that the user needs, in the syntax of `ACL SETUSER`.
pub(crate) const RIGHTS: &str = "~enrich:* +ping +evalsha +script|load +time +pttl +set +incrby +pexpireat";

impl WindowStoreError {
    /// Returns true if the connection may be the cause, so that a new connection may reach a working server.
    pub(crate) fn is_connection_error(&self) -> bool {
        let is_about_the_count = matches!(
            self,
            Self::NotAllowed
                | Self::OutOfMemory
                | Self::WindowExpired(_)
                | Self::WindowAhead(_)
                | Self::ForeignKey
        );
        !is_about_the_count
    }

    /// Converts an error of connecting.
    pub(crate) fn of_connecting(error: &RedisError) -> Self {
        match Self::of(error) {
            Self::Disconnected(what) => Self::Unreachable(what),
            error => error,
        }
    }

    /// Converts an error on an established connection.
    pub(crate) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::AuthenticationFailed => return Self::AuthenticationFailed,
            ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => {
                return Self::Disconnected(error.to_string());
            }
            _ => {}
        }
        let detail = error.detail().unwrap_or_default();
        match inner_code(detail).or(error.code()) {
            Some("WRONGPASS" | "NOAUTH") => Self::AuthenticationFailed,
            Some("NOPERM") => Self::NotAllowed,
            Some("READONLY") => Self::ReadOnly,
            Some(code @ ("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY")) => {
                Self::NotReady(code.to_owned())
            }
            Some("OOM") => Self::OutOfMemory,
            Some("LATE") => Self::WindowExpired(detail.parse().unwrap_or_default()),
            Some("EARLY") => Self::WindowAhead(detail.parse().unwrap_or_default()),
            Some("WRONGTYPE") => Self::ForeignKey,
            // A command in the script was denied: by Redis up to 7.0, and by later versions and Valkey.
            Some("ERR")
                if detail.contains("user executing the script")
                    || detail.starts_with("ACL failure in script") =>
            {
                Self::NotAllowed
            }
            // `INCRBY` on a value that is not an integer.
            Some("ERR") if detail.contains("not an integer") => Self::ForeignKey,
            Some("ERR") if detail.contains("max number of clients") => Self::TooManyClients,
            Some("ERR") if detail.contains("DB index is out of range") => Self::NoDatabase,
            Some("ERR") if detail.contains("cluster support disabled") => Self::NoCluster,
            Some(code) => Self::ErrorReply(code.to_owned()),
            None => Self::UnexpectedReply,
        }
    }
}

/// Returns the code of an error that Redis 6.2 has wrapped, as in `ERR Error running script (call to f_…):
/// @user_script:14: @user_script: 14: -OOM command not allowed`.
fn inner_code(detail: &str) -> Option<&str> {
    let message = detail.strip_prefix("Error running script")?.rsplit(": ").next()?;
    let code = message.trim_start_matches('-').split(' ').next()?;
    code.bytes().all(|byte| byte.is_ascii_uppercase()).then_some(code)
}
