//! Redis, as far as its adapter asks it.
//!
//! `counters` what it knows · `connection` its protocol.

mod connection;
pub mod counters;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite};

use self::counters::Counters;

/// The server. Its memory outlives its connections, until it [loses](Redis::forget) it. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    memory: Arc<Mutex<Memory>>,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
}

#[derive(Debug, Default)]
struct Memory {
    counters: Counters,
    /// By their SHA-1, in hexadecimal digits.
    scripts: BTreeSet<String>,
}

impl Redis {
    /// A server that knows nothing, whose clock says `now`, in milliseconds since the Unix epoch.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { memory: Arc::default(), now: Arc::new(now) }
    }

    /// Loses its memory, as one does that is started anew.
    pub fn forget(&self) {
        *self.lock() = Memory::default();
    }

    /// Serves one connection until it ends.
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
