//! Accepting connections, until the end of the listener's queue.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::listener::{self, Listener};
use crate::registry::{Registry, Slot};
use crate::shutdown::Shutdown;

/// Time for the handshakes that are in progress when the listener stops, before its queue is complete.
const HANDSHAKES_TIMEOUT: Duration = Duration::from_millis(20);

/// Accepts the connections of a listener and registers them.
pub(crate) struct Acceptor<L: Listener> {
    listener: L,
    registry: Arc<Registry>,
    shutdown: Arc<Shutdown>,
    is_socket_shared: bool,
    /// The time at which the listener closes, once the shutdown has stopped it.
    closes_at: Option<Instant>,
    /// An accepted connection that waits for a slot.
    waiting: Option<(L::Io, IpAddr)>,
}

impl<L: Listener> Acceptor<L> {
    pub(crate) fn new(
        listener: L,
        registry: Arc<Registry>,
        shutdown: Arc<Shutdown>,
        is_socket_shared: bool,
    ) -> Self {
        Self { listener, registry, shutdown, is_socket_shared, closes_at: None, waiting: None }
    }

    /// Accepts the next connection. Returns `None` after the last one; the caller then closes the listener.
    /// Cancel safe.
    pub(crate) async fn accept(&mut self) -> Option<(L::Io, Slot)> {
        let closing = self.shutdown.clone();
        closing.closing.run_until_cancelled(self.accept_until_stopped()).await.flatten()
    }

    async fn accept_until_stopped(&mut self) -> Option<(L::Io, Slot)> {
        loop {
            let address = match &self.waiting {
                Some((_, address)) => *address,
                None => {
                    let (io, peer) = self.accept_next().await?;
                    self.waiting.insert((io, peer.ip())).1
                }
            };
            let slot = self.registry.admit(address).await;
            if let (Some((io, _)), Some(slot)) = (self.waiting.take(), slot) {
                return Some((io, slot));
            }
        }
    }

    async fn accept_next(&mut self) -> Option<(L::Io, SocketAddr)> {
        let closes_at = match self.closes_at {
            Some(at) => at,
            None => tokio::select! { biased;
                () = self.shutdown.stopping.cancelled() => self.stop()?,
                accepted = listener::accept(&mut self.listener) => return Some(accepted),
            },
        };
        // The order ensures that the queue is empty when the listener closes.
        tokio::select! { biased;
            accepted = listener::accept(&mut self.listener) => Some(accepted),
            () = sleep_until(closes_at) => None,
        }
    }

    /// Refuses further connections and returns the time at which all earlier ones are in the queue. Returns
    /// `None` if another process accepts them.
    fn stop(&mut self) -> Option<Instant> {
        if self.is_socket_shared {
            return None;
        }
        self.listener.refuse();
        self.closes_at = Some(Instant::now() + HANDSHAKES_TIMEOUT);
        self.closes_at
    }
}
