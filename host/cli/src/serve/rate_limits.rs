//! The store of rate-limit windows: the memory of this process, or Redis.

use std::sync::Arc;

use enrich_host::SystemArrivals;
use enrich_lib::memory::WindowTable;
use enrich_lib::ports::Windows;
use enrich_redis::{RedisPolicy, RedisWindows, WindowStoreError};
use enrich_store::ClockSkew;

use super::clocks;
use crate::failure::{Exit, Failure};
use crate::settings::WindowStore;
use crate::url::ServerUrl;

#[derive(Clone)]
pub enum RateLimits {
    Memory(Arc<WindowTable>),
    Redis(Arc<RedisWindows>),
}

impl RateLimits {
    /// Opens the store. Does not connect: the connection to Redis belongs to the thread that makes the first count.
    pub fn open(at: &WindowStore) -> Result<Self, Failure> {
        let WindowStore::Redis(server) = at else { return Ok(Self::Memory(Arc::default())) };
        // Needs no timeout here: `RedisWindows` has its own.
        let windows = RedisWindows::open(&server.url, RedisPolicy::default(), rand::random());
        Ok(Self::Redis(Arc::new(windows.map_err(|error| server.unusable(error))?)))
    }

    /// Opens the store, and checks that Redis can count.
    pub async fn open_checked(at: &WindowStore) -> Result<Self, Failure> {
        let opened = Self::open(at)?;
        if let (Self::Redis(windows), WindowStore::Redis(server)) = (&opened, at) {
            windows.check().await.map_err(|error| cannot_count(&server.shown, &error))?;
        }
        Ok(opened)
    }

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

    pub fn is_redis(&self) -> bool {
        matches!(self, Self::Redis(_))
    }

    /// Returns the last measured difference to Redis's clock.
    pub fn clock_skew(&self) -> Option<ClockSkew> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(windows) => windows.clock_skew(),
        }
    }

    /// Compares the clock of this machine with Redis's clock until it is cancelled.
    pub async fn watch_clock(&self) {
        let compare = async || match self {
            Self::Memory(_) => Ok::<_, WindowStoreError>(None),
            Self::Redis(windows) => Ok(Some(windows.compare_clocks(SystemArrivals::now).await?)),
        };
        clocks::watch("Redis", compare).await;
    }
}

/// Creates the error for a Redis server that cannot count. The cause contains the advice.
fn cannot_count(url: &ServerUrl, error: &WindowStoreError) -> Failure {
    let failure = Failure::new(format!("cannot use {url} as the rate-limit store: {error}"));
    match error {
        WindowStoreError::Unreachable(_) => failure.exit(Exit::Unreachable),
        _ => failure,
    }
}
