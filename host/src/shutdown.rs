//! The phases of a graceful shutdown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::registry::Registry;

/// Time for the requests on the connections that were accepted last.
const LAST_REQUESTS_TIMEOUT: Duration = Duration::from_millis(250);

/// The state of a shutdown, shared by all connections and threads. Its tokens are cancelled in the order of
/// the fields.
#[derive(Debug)]
pub(crate) struct Shutdown {
    is_draining: AtomicBool,
    /// Replies announce the end of the connection.
    pub(crate) draining: CancellationToken,
    /// The listener accepts the connections in its queue and closes.
    pub(crate) stopping: CancellationToken,
    /// Each connection closes as soon as it has no request in flight.
    pub(crate) closing: CancellationToken,
}

impl Shutdown {
    pub(crate) fn new() -> Self {
        let closing = CancellationToken::new();
        let stopping = closing.child_token();
        Self { is_draining: AtomicBool::new(false), draining: stopping.child_token(), stopping, closing }
    }

    /// Returns whether replies announce the end of the connection. Reading a token would lock a mutex for
    /// each request.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Waits for `signal`, then begins all phases.
    ///
    /// A client may send a request just before an idle connection is closed, so it must first be able to
    /// receive a reply that announces the close. If another process accepts the connections of a shared
    /// socket, this one stops at once.
    pub(crate) async fn run(
        &self,
        signal: impl Future<Output = ()>,
        registry: &Registry,
        drain: Duration,
        is_socket_shared: bool,
    ) {
        signal.await;
        self.is_draining.store(true, Ordering::Relaxed);
        self.draining.cancel();
        let rest = if is_socket_shared {
            drain
        } else {
            sleep(drain).await;
            LAST_REQUESTS_TIMEOUT
        };
        self.stopping.cancel();
        let _ = timeout(rest, emptied(registry)).await;
        self.closing.cancel();
    }
}

/// Waits until no connection is open.
async fn emptied(registry: &Registry) {
    /// Longer than the listener needs to empty its queue.
    const INTERVAL: Duration = Duration::from_millis(50);

    loop {
        sleep(INTERVAL).await;
        if registry.is_empty() {
            return;
        }
    }
}
