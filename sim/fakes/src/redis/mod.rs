//! A fake Redis with the subset that the adapter uses.
//!
//! `counters` the stored data · `connection` the protocol.

mod connection;
pub mod counters;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite};

use self::counters::Counters;

/// A fake Redis server. Its data outlives connections, until [`forget`](Redis::forget) clears it. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    memory: Arc<Mutex<Memory>>,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
}

#[derive(Debug, Default)]
struct Memory {
    counters: Counters,
    /// The SHA-1 hashes of the loaded scripts, in hexadecimal.
    scripts: BTreeSet<String>,
}

impl Redis {
    /// Creates an empty server. `now` returns its clock, in milliseconds since the Unix epoch.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { memory: Arc::default(), now: Arc::new(now) }
    }

    /// Clears all data, as a restart without persistence does.
    pub fn forget(&self) {
        *self.lock() = Memory::default();
    }

    /// Serves one connection until it closes.
    pub async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        connection::serve(self, stream).await
    }

    fn now_ms(&self) -> i64 {
        i64::try_from((self.now)()).unwrap_or(i64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("memory", &*self.lock()).finish_non_exhaustive()
    }
}
