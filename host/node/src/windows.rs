//! The store of rate-limit windows: the memory of this process, or Redis.

use std::sync::Arc;

use enrich_lib::memory::WindowTable;
use enrich_lib::model::Timestamp;
use enrich_lib::ports::Windows;
use enrich_redis::{RedisWindows, WindowStoreError};
use enrich_store::ClockSkew;

/// A store of rate-limit windows.
#[derive(Clone, Debug)]
pub enum RateLimits {
    /// The memory of this process.
    Memory(Arc<WindowTable>),
    /// Redis, which has its own timeout.
    Redis(Arc<RedisWindows>),
}

impl RateLimits {
    /// Returns the port of the library.
    pub fn port(&self) -> Arc<dyn Windows> {
        match self {
            Self::Memory(windows) => windows.clone(),
            Self::Redis(windows) => windows.clone(),
        }
    }

    /// Fails if Redis cannot count. Uses a connection of its own, and no connection for the memory.
    pub async fn check(&self) -> Result<(), WindowStoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(windows) => windows.check().await,
        }
    }

    /// Returns whether the store is Redis.
    pub fn is_redis(&self) -> bool {
        matches!(self, Self::Redis(_))
    }

    /// Compares the node's clock, which `now` reads, with Redis's clock. Returns `None` for the memory.
    pub(crate) async fn compare_clocks(
        &self,
        now: impl Fn() -> Timestamp,
    ) -> Result<Option<ClockSkew>, WindowStoreError> {
        match self {
            Self::Memory(_) => Ok(None),
            Self::Redis(windows) => windows.compare_clocks(now).await.map(Some),
        }
    }

    /// Returns the last measured difference to Redis's clock.
    pub fn clock_skew(&self) -> Option<ClockSkew> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(windows) => windows.clock_skew(),
        }
    }
}
