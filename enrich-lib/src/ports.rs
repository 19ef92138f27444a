//! The four ports: the interfaces to the stores and the resolver.
//!
//! Each method is one atomic operation; the arithmetic stays in the library. An implementation returns a value or fails with
//! a [`PortError`]. The transition that receives the error determines the HTTP status. An error must not contain an email or
//! a key.

use async_trait::async_trait;

use crate::credit::{Hold, HoldOutcome, Settlement};
use crate::key::KeyDigest;
use crate::query::Query;
use crate::refusal::PortError;
use crate::resolver::Answer;
use crate::window::{Window, Workspace};

/// Finds the workspace of an API key. A failure results in 500 `server_error`.
#[async_trait]
pub trait Keys: Send + Sync {
    /// Returns the workspace of a key, or `None` if the key is unknown or revoked (specification 5.5).
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError>;
}

/// Counts requests. A failure results in 503 `rate_limit_unavailable`, and the lookup is not executed.
#[async_trait]
pub trait Windows: Send + Sync {
    /// Counts one more request in `window` and returns the new count, starting at 1.
    ///
    /// The operation must be atomic, so that no two requests receive the same count. The counter must be kept until a
    /// correct clock reaches [`Window::expires_at`]. A counter that restarts earlier would admit the full limit again.
    ///
    /// A store that several nodes share and that has a clock fails the count of a window that opens too far in the future.
    /// The node's clock is fast then, and the other nodes count in an earlier window.
    async fn count(&self, window: &Window) -> Result<u64, PortError>;
}

/// Holds and settles credits. A failed hold and a failed spend result in 500 `server_error`.
///
/// Both operations are idempotent by lookup id and behave like [`crate::credit::Account`].
#[async_trait]
pub trait Credits: Send + Sync {
    /// Holds credits, if the workspace has enough. Dropping the future may leave the hold in place until it expires.
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError>;

    /// Settles a hold.
    ///
    /// A spend is durable when this returns `Ok`. When it returns an error, nothing was spent, and nothing will be: the
    /// lookup results in a 500, which promises that. While the outcome is unknown, for example because the disk does not
    /// respond, the future is pending. Dropping it does not withdraw the spend.
    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError>;
}

/// Finds people. A failure results in 502 `lookup_error`, and the hold is released.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns the profile of the person behind [`Query::email`], or an answer without one if there is no trusted match.
    async fn find(&self, query: &Query) -> Result<Answer, PortError>;
}
