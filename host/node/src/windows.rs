//! The store of rate-limit windows: the memory of this process, or Redis.

use std::sync::Arc;

use enrich_lib::memory::WindowTable;
use enrich_lib::model::Timestamp;
use enrich_lib::ports::Windows;
use enrich_redis::{RedisWindows, WindowStoreError};

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

    /// Fails if Redis cannot count the requests of a node whose time is `now`. Uses a connection of its own, and no
    /// connection for the memory.
    pub async fn check(&self, now: Timestamp) -> Result<(), WindowStoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(windows) => windows.check(now).await,
        }
    }

    /// Returns whether the store is Redis.
    pub fn is_redis(&self) -> bool {
        matches!(self, Self::Redis(_))
    }
}
