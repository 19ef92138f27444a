//! Timeouts of the other ports. The timeout of a resolver is [`Deadline`](crate::Deadline).
//!
//! The library has no clock, so the server applies these timeouts. The sum of all timeouts must stay below
//! [`Policy::hold_ttl`](enrich_lib::lookup::Policy::hold_ttl). Otherwise a hold could expire while its lookup
//! is still running.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyDigest;
use enrich_lib::ports::{Credits, Keys, Windows};
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Window, Workspace};

use crate::timeout::timeout;

/// API keys with a timeout. A lookup whose key is not found in time fails with 500.
pub struct KeysWithTimeout {
    /// The wrapped key store.
    pub keys: Arc<dyn Keys>,
    /// Timeout of one call.
    pub timeout: Duration,
}

impl KeysWithTimeout {
    /// The default timeout.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
}

#[async_trait]
impl Keys for KeysWithTimeout {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        within(self.timeout, "key lookup", self.keys.find(key)).await
    }
}

/// Rate-limit windows with a timeout. A count that is late fails closed: 503.
pub struct WindowsWithTimeout {
    /// The wrapped rate-limit store.
    pub windows: Arc<dyn Windows>,
    /// Timeout of one count.
    pub timeout: Duration,
}

impl WindowsWithTimeout {
    /// The default timeout. A rate limiter that takes longer is considered down.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(100);
}

#[async_trait]
impl Windows for WindowsWithTimeout {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        within(self.timeout, "rate-limit count", self.windows.count(window)).await
    }
}

/// Credits with a timeout for holds and releases. A spend has none: the store alone knows whether it can
/// still be withdrawn.
pub struct CreditsWithTimeout {
    /// The wrapped credits.
    pub credits: Arc<dyn Credits>,
    /// Timeout of a hold or a release.
    pub timeout: Duration,
}

impl CreditsWithTimeout {
    /// The default timeout.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
}

#[async_trait]
impl Credits for CreditsWithTimeout {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        within(self.timeout, "credit hold", self.credits.hold(hold)).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let settled = self.credits.settle(hold, settlement);
        match settlement {
            Settlement::Release => within(self.timeout, "credit release", settled).await,
            Settlement::Spend(_) => settled.await,
        }
    }
}

/// Awaits the result of a port's `operation`. Fails if it takes longer than `limit`.
async fn within<T>(
    limit: Duration,
    operation: &str,
    result: impl Future<Output = Result<T, PortError>> + Unpin,
) -> Result<T, PortError> {
    timeout(limit, result).await.unwrap_or_else(|| Err(timed_out(operation, limit)))
}

fn timed_out(operation: &str, limit: Duration) -> PortError {
    PortError::new(format!("{operation} timed out after {limit:?}"))
}

impl fmt::Debug for KeysWithTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeysWithTimeout").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl fmt::Debug for WindowsWithTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowsWithTimeout").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl fmt::Debug for CreditsWithTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreditsWithTimeout").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
