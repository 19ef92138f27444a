//! The four ports: what the library asks of the world.
//!
//! Each is one atomic primitive; the arithmetic stays in the library. An implementation answers, or fails
//! with a [`PortError`]: *which transition receives it* decides the status. None may put an email or a key into
//! its error.

use async_trait::async_trait;

use crate::credit::{Hold, Holding, Settlement};
use crate::key::KeyDigest;
use crate::model::ProfileUrl;
use crate::query::Query;
use crate::refusal::PortError;
use crate::window::{Window, Workspace};

/// Knows API keys. A failure is answered with 500 `server_error`.
#[async_trait]
pub trait Keys: Send + Sync {
    /// The workspace of a key, or `None` if the key is unknown or revoked (specification 5.5).
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError>;
}

/// Counts requests. A failure is answered with 503 `rate_limit_unavailable`, and nothing is executed.
#[async_trait]
pub trait Windows: Send + Sync {
    /// Counts one more request in `window` and returns the new count, 1 for the first: atomic, so that no two
    /// requests get the same count. The counter is kept until [`Window::forget_at`], by the right time: one that
    /// began anew would let the limit through again.
    async fn count(&self, window: &Window) -> Result<u64, PortError>;
}

/// Keeps accounts. A failed hold is answered with 500 `server_error`, and so is a spend that failed.
///
/// Both steps are idempotent by lookup id and behave as [`crate::credit::Account`] does. Attempts of one lookup follow one
/// another: a caller gives one up, by dropping it, before it makes the next. A spend that was given up for good must
/// not stand, as its lookup is answered with 500.
#[async_trait]
pub trait Credits: Send + Sync {
    /// Sets credits aside, if the workspace has them.
    async fn hold(&self, hold: &Hold) -> Result<Holding, PortError>;

    /// Ends a hold. Once `Ok`, a spend is durable.
    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError>;
}

/// Finds people. A failure is answered with 502 `lookup_error`, and the hold is released.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns the profile of the person behind [`Query::email`], or `None` if there is no trusted match.
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError>;
}
