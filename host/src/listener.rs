//! Sources of connections, and accepting until the end of a listener's queue.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use crate::registry::{Registry, Slot};
use crate::shutdown::Shutdown;

/// A source of connections: a TCP listener, or a replacement in tests and simulations.
pub trait Listener: Send {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection and returns it with the peer's address.
    ///
    /// Implementations must be cancel safe: dropping the future must not lose a connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;
}

impl Listener for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // A reply is one small write, so Nagle's algorithm would only delay it. The connection works without
        // the option too, so an error is ignored.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer))
    }
}

/// Delay after a failed accept, for example while the process has no free file descriptors.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Accepts the next connection. Retries after errors, because a server must survive running out of file
/// descriptors. Logs the first of them.
async fn accept<L: Listener>(listener: &mut L) -> (L::Io, SocketAddr) {
    let mut is_failing = false;
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_connection_error(&error) => {
                tracing::debug!(%error, "connection failed before it was accepted")
            }
            Err(error) => {
                if !mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, "cannot accept connections; retrying");
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// Returns whether the connection failed rather than the listener. The next accept can then follow
/// immediately.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

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
                accepted = accept(&mut self.listener) => return Some(accepted),
            },
        };
        // The order ensures that the queue is empty when the listener closes.
        tokio::select! { biased;
            accepted = accept(&mut self.listener) => Some(accepted),
            () = sleep_until(closes_at) => None,
        }
    }

    /// Returns the time at which the listener closes, or `None` if another process accepts the connections. One
    /// that arrives just before that time can be reset.
    fn stop(&mut self) -> Option<Instant> {
        self.closes_at = (!self.is_socket_shared).then(|| Instant::now() + HANDSHAKES_TIMEOUT);
        self.closes_at
    }
}
