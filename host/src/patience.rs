//! Timeouts of the ports, and retries of settlements.
//!
//! The library has no clock, so the server applies these timeouts. The timeout of a resolver is
//! [`enrich_middleware::Deadline`].
//!
//! The sum of all timeouts must stay below [`Policy::hold_ttl`](enrich_lib::lookup::Policy::hold_ttl). Otherwise a hold
//! could expire while its lookup is still running.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyDigest;
use enrich_lib::ports::{Credits, Keys, Windows};
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Window, Workspace};
use enrich_middleware::timeout;
use tokio::time::sleep;

/// API keys with a timeout. A lookup whose key is not found in time fails with 500.
pub struct KeysWithTimeout {
    /// The wrapped key store.
    pub keys: Arc<dyn Keys>,
    /// Timeout of one call.
    pub deadline: Duration,
}

impl KeysWithTimeout {
    /// The default timeout.
    pub const DEADLINE: Duration = Duration::from_secs(1);
}

#[async_trait]
impl Keys for KeysWithTimeout {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        in_time(self.deadline, "no key was found", self.keys.find(key)).await
    }
}

/// Rate-limit windows with a timeout. A count that is late fails closed: 503.
pub struct WindowsWithTimeout {
    /// The wrapped rate-limit store.
    pub windows: Arc<dyn Windows>,
    /// Timeout of one count.
    pub deadline: Duration,
}

impl WindowsWithTimeout {
    /// The default timeout. A rate limiter that takes longer is considered down.
    pub const DEADLINE: Duration = Duration::from_millis(100);
}

#[async_trait]
impl Windows for WindowsWithTimeout {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        in_time(self.deadline, "nothing was counted", self.windows.count(window)).await
    }
}

/// Credits that retry settlements, with the same lookup id, until one succeeds or the deadline passes.
///
/// Retries ensure that every result is billed and that transient failures are not visible to the client.
pub struct RetryingCredits {
    /// The wrapped credits.
    pub credits: Arc<dyn Credits>,
    /// Timeout of a hold, and of a settlement with all its retries.
    pub deadline: Duration,
}

impl RetryingCredits {
    /// The default timeout.
    pub const DEADLINE: Duration = Duration::from_secs(5);

    const PAUSE_FIRST: Duration = Duration::from_millis(20);
    const PAUSE_MAX: Duration = Duration::from_secs(1);
}

#[async_trait]
impl Credits for RetryingCredits {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        in_time(self.deadline, "no hold was granted", self.credits.hold(hold)).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let mut last_error = None;
        let settled = {
            let in_the_end = pin!(async {
                let mut pause = Self::PAUSE_FIRST;
                while let Err(error) = self.credits.settle(hold, settlement).await {
                    last_error = Some(error);
                    Box::pin(sleep(pause)).await; // boxed because it is rarely needed
                    pause = (pause * 2).min(Self::PAUSE_MAX);
                }
            });
            timeout(self.deadline, in_the_end).await
        };
        settled.ok_or_else(|| {
            last_error.unwrap_or_else(|| too_late(self.deadline, "no settlement was answered"))
        })
    }
}

/// Awaits a port's result. Fails if it takes longer than `deadline`.
async fn in_time<T>(
    deadline: Duration,
    failure: &str,
    answer: impl Future<Output = Result<T, PortError>> + Unpin,
) -> Result<T, PortError> {
    timeout(deadline, answer).await.unwrap_or_else(|| Err(too_late(deadline, failure)))
}

fn too_late(deadline: Duration, failure: &str) -> PortError {
    PortError::new(format!("{failure} in {deadline:?}"))
}

impl fmt::Debug for KeysWithTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeysWithTimeout").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl fmt::Debug for WindowsWithTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowsWithTimeout").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl fmt::Debug for RetryingCredits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryingCredits").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
