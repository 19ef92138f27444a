//! Where connections come from.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A source of connections: a TCP listener, or what a test or a simulation has in its place.
pub trait Listener: Send {
    /// One connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection and whose it is. Has to be cancel safe: a dropped call loses no connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;
}

impl Listener for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // A reply is one small write: waiting for more to send would only delay it. Without it, it still arrives.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer))
    }
}

/// How long to wait for file descriptors to come free.
const BACK_OFF: Duration = Duration::from_millis(50);

/// The next connection, however many attempts fail: a server that runs out of file descriptors must not end.
pub(crate) async fn accept<L: Listener>(listener: &mut L) -> (L::Io, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_the_connection(&error) => tracing::debug!(%error, "a connection ended early"),
            Err(error) => {
                tracing::warn!(%error, "can't accept connections");
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
}

/// The connection failed, not the listener: the next one can be accepted at once.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
