//! Sources of connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

#[cfg(target_os = "linux")]
use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A source of connections: a TCP listener, or a replacement in tests and simulations.
pub trait Listener: Send {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection and returns it with the peer's address.
    ///
    /// Implementations must be cancel safe: dropping the future must not lose a connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;

    /// Refuses connections from now on. Those that are established stay in the listener's queue. The server
    /// calls it before it accepts the last ones and closes the listener, which would reset them. Does nothing
    /// by default.
    fn refuse(&mut self) {}
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

    /// Drops SYN packets. Their clients send them again after a second, and then reach the next server on
    /// this address, or are refused.
    #[cfg(target_os = "linux")]
    fn refuse(&mut self) {
        /// The offset of the flags in a TCP header.
        const FLAGS: u32 = 13;
        const SYN: u32 = 0x02;
        /// Instructions of classic BPF.
        const LOAD_BYTE: u16 = 0x30;
        const JUMP_IF_ANY_BIT: u16 = 0x45;
        const RETURN: u16 = 0x06;

        let program = [
            SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
            SockFilter::new(JUMP_IF_ANY_BIT, 0, 1, SYN),
            SockFilter::new(RETURN, 0, 0, 0),
            SockFilter::new(RETURN, 0, 0, u32::MAX),
        ];
        if let Err(error) = SockRef::from(&*self).attach_filter(&program) {
            tracing::debug!(%error, "cannot refuse connections; the last one can be lost");
        }
    }
}

/// Delay after a failed accept, for example while the process has no free file descriptors.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Accepts the next connection. Retries after errors, because a server must survive running out of file
/// descriptors.
pub(crate) async fn accept<L: Listener>(listener: &mut L) -> (L::Io, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_connection_error(&error) => {
                tracing::debug!(%error, "connection failed before it was accepted")
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; retrying");
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
