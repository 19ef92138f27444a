//! The phases of a graceful shutdown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::registry::Registry;

/// The state of a shutdown, shared by all connections and threads.
#[derive(Debug)]
pub(crate) struct Shutdown {
    is_draining: AtomicBool,
    /// Cancelled first. Replies then announce the end of the connection.
    pub(crate) draining: CancellationToken,
    /// Cancelled last. Each connection then closes as soon as it has no request in flight.
    pub(crate) closing: CancellationToken,
}

impl Shutdown {
    pub(crate) fn new() -> Self {
        let closing = CancellationToken::new();
        Self { is_draining: AtomicBool::new(false), draining: closing.child_token(), closing }
    }

    /// Returns whether replies announce the end of the connection. Reading a token would lock a mutex for each request.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Returns the token that is cancelled when no further connection is accepted.
    pub(crate) fn end_of_accepting(&self, is_socket_shared: bool) -> CancellationToken {
        if is_socket_shared { self.draining.clone() } else { self.closing.clone() }
    }

    /// Waits for `signal`, then begins both phases.
    ///
    /// A client may send a request just before an idle connection is closed, so it must first be able to receive a reply that
    /// announces the close.
    pub(crate) async fn run(&self, signal: impl Future<Output = ()>, registry: &Registry, drain: Duration) {
        /// Time without connections after which none is expected in the listener's queue.
        const QUIET: Duration = Duration::from_millis(20);

        signal.await;
        self.is_draining.store(true, Ordering::Relaxed);
        self.draining.cancel();
        let is_quiet = async {
            loop {
                let admitted = registry.admitted();
                sleep(QUIET).await;
                if registry.is_empty() && registry.admitted() == admitted {
                    return;
                }
            }
        };
        let _ = timeout(drain, is_quiet).await;
        self.closing.cancel();
    }
}
