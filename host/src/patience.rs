//! How long a port may take, and how often a settlement is asked for. The library has no clock, so this is the host's. A
//! resolver's patience is [`enrich_compose::Deadline`].
//!
//! Together the times stay below [`Policy::hold_ttl`](enrich_lib::lookup::Policy::hold_ttl), or holds would expire under
//! their lookups.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_compose::timeout;
use enrich_lib::credit::{Hold, Holding, Settlement};
use enrich_lib::key::KeyDigest;
use enrich_lib::ports::{Credits, Keys, Windows};
use enrich_lib::refusal::PortError;
use enrich_lib::window::{Window, Workspace};
use tokio::time::sleep;

/// Keys that are found in time, or fail: 500.
pub struct TimelyKeys {
    /// The keys.
    pub keys: Arc<dyn Keys>,
    /// How long they may take.
    pub deadline: Duration,
}

impl TimelyKeys {
    /// The deadline unless the operator sets another.
    pub const DEADLINE: Duration = Duration::from_secs(1);
}

#[async_trait]
impl Keys for TimelyKeys {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        in_time(self.deadline, "no key was found", self.keys.find(key)).await
    }
}

/// Windows that count in time, or fail closed: 503.
pub struct TimelyWindows {
    /// The windows.
    pub windows: Arc<dyn Windows>,
    /// How long a count may take.
    pub deadline: Duration,
}

impl TimelyWindows {
    /// The deadline unless the operator sets another: a limiter that is slower than this is down.
    pub const DEADLINE: Duration = Duration::from_millis(100);
}

#[async_trait]
impl Windows for TimelyWindows {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        in_time(self.deadline, "nothing was counted", self.windows.count(window)).await
    }
}

/// Credits whose settlements are asked for again, under the same lookup id, until they are answered: a result is
/// never given away unbilled, and a failure that passes is not the client's.
pub struct PersistentCredits {
    /// The credits.
    pub credits: Arc<dyn Credits>,
    /// How long a settlement is tried.
    pub deadline: Duration,
}

impl PersistentCredits {
    /// The deadline unless the operator sets another.
    pub const DEADLINE: Duration = Duration::from_secs(5);

    const PAUSE_FIRST: Duration = Duration::from_millis(20);
    const PAUSE_MAX: Duration = Duration::from_secs(1);
}

#[async_trait]
impl Credits for PersistentCredits {
    async fn hold(&self, hold: &Hold) -> Result<Holding, PortError> {
        in_time(self.deadline, "no hold was granted", self.credits.hold(hold)).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let mut last_fault = None;
        let settled = {
            let in_the_end = pin!(async {
                let mut pause = Self::PAUSE_FIRST;
                while let Err(fault) = self.credits.settle(hold, settlement).await {
                    last_fault = Some(fault);
                    Box::pin(sleep(pause)).await; // boxed: there is hardly ever one
                    pause = (pause * 2).min(Self::PAUSE_MAX);
                }
            });
            timeout(self.deadline, in_the_end).await
        };
        settled.ok_or_else(|| {
            last_fault.unwrap_or_else(|| too_late(self.deadline, "no settlement was answered"))
        })
    }
}

/// The answer of a port, or its failure to give one within `deadline`.
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

impl fmt::Debug for TimelyKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimelyKeys").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl fmt::Debug for TimelyWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimelyWindows").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl fmt::Debug for PersistentCredits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentCredits").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
