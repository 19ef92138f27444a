//! Opens the store of rate-limit windows.

use std::sync::Arc;

use enrich_host::SystemArrivals;
use enrich_lib::ports::Windows;
use enrich_node::RateLimits;
use enrich_redis::{RedisPolicy, RedisWindows, WindowStoreError};

use crate::failure::{Exit, Failure};
use crate::settings::WindowStore;
use crate::url::ServerUrl;

/// Opens the store. Does not connect: the connection to Redis belongs to the thread that makes the first
/// count.
fn open(at: &WindowStore) -> Result<RateLimits, Failure> {
    let WindowStore::Redis(server) = at else { return Ok(RateLimits::Memory(Arc::default())) };
    let windows = RedisWindows::open(&server.url, RedisPolicy::default(), rand::random());
    Ok(RateLimits::Redis(Arc::new(windows.map_err(|error| server.unusable(error))?)))
}

/// Opens the store, and checks that Redis can count.
pub async fn open_checked(at: &WindowStore) -> Result<RateLimits, Failure> {
    let windows = open(at)?;
    match at {
        WindowStore::Memory => {}
        WindowStore::Redis(server) => {
            windows.check(SystemArrivals::now()).await.map_err(|error| cannot_count(&server.shown, &error))?
        }
    }
    Ok(windows)
}

/// Returns the port of an open store for another thread. A connection to Redis belongs to the thread that
/// uses it first.
pub fn port_of_thread(windows: &RateLimits, at: &WindowStore) -> Result<Arc<dyn Windows>, Failure> {
    match windows {
        RateLimits::Memory(_) => Ok(windows.port()),
        RateLimits::Redis(_) => Ok(open(at)?.port()),
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
