//! How long a port may take, and how often a settlement is asked for. The library has no clock, so this is the host's.
//!
//! Together the times stay below [`Policy::hold_ttl`](enrich_lib::lookup::Policy::hold_ttl), or holds would expire under
//! their lookups.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, Holding, Settlement};
use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::{Credits, Resolver};
use enrich_lib::refusal::PortError;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// A resolver that answers in time, or fails: 502.
pub struct TimelyResolver {
    /// The resolver.
    pub resolver: Arc<dyn Resolver>,
    /// How long it may take.
    pub deadline: Duration,
}

impl TimelyResolver {
    /// The deadline unless the operator sets another.
    pub const DEADLINE: Duration = Duration::from_secs(10);
}

#[async_trait]
impl Resolver for TimelyResolver {
    async fn find(&self, email: &Email) -> Result<Option<ProfileUrl>, PortError> {
        let found = timeout(self.deadline, self.resolver.find(email)).await;
        found.unwrap_or_else(|_| {
            Err(PortError::new(format!("the resolver did not answer in {:?}", self.deadline)))
        })
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
        let held = timeout(self.deadline, self.credits.hold(hold)).await;
        held.unwrap_or_else(|_| Err(PortError::new(format!("no hold was granted in {:?}", self.deadline))))
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let give_up_at = Instant::now() + self.deadline;
        let mut pause = Self::PAUSE_FIRST;
        loop {
            let settled = timeout_at(give_up_at, self.credits.settle(hold, settlement)).await;
            let fault = match settled {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(fault)) => fault,
                Err(_) => {
                    return Err(PortError::new(format!("no settlement was answered in {:?}", self.deadline)));
                }
            };
            if Instant::now() + pause >= give_up_at {
                return Err(fault);
            }
            sleep(pause).await;
            pause = (pause * 2).min(Self::PAUSE_MAX);
        }
    }
}

impl fmt::Debug for TimelyResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimelyResolver").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl fmt::Debug for PersistentCredits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentCredits").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
