//! Detection of peers that no longer respond.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::connect::{Connect, Stream};

/// When the system closes a TCP connection whose peer does not respond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// The keepalive probes on an idle connection; `None` sends none.
    pub keepalive: Option<Keepalive>,
    /// How long sent data may remain unacknowledged; `None` selects the system's default. Without effect on
    /// systems other than Linux.
    pub user_timeout: Option<Duration>,
}

/// The keepalive probes on an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// The time without data before the first probe.
    pub idle: Duration,
    /// The time between two probes.
    pub interval: Duration,
    /// The number of unanswered probes that closes the connection.
    pub count: u32,
}

/// Connects to one address over TCP, with [`Liveness`] and without Nagle's algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpAddress {
    /// The address of the peer.
    pub address: SocketAddr,
    /// When the system closes the connection.
    pub liveness: Liveness,
}

impl Default for Liveness {
    /// Detects a dead peer within 20 s on an idle connection, and within 5 s after sending data.
    fn default() -> Self {
        let keepalive =
            Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(3), count: 3 };
        Self { keepalive: Some(keepalive), user_timeout: Some(Duration::from_secs(5)) }
    }
}

impl Liveness {
    fn apply(&self, stream: &TcpStream) -> io::Result<()> {
        let socket = SockRef::from(stream);
        if let Some(Keepalive { idle, interval, count }) = self.keepalive {
            let probes = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(count);
            socket.set_tcp_keepalive(&probes)?;
        }
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(self.user_timeout)?;
        Ok(())
    }
}

#[async_trait]
impl Connect for TcpAddress {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        self.liveness.apply(&stream)?;
        Ok(Box::new(stream))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn sets_the_options_of_the_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stream =
            TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        Liveness::default().apply(&stream).expect("the options are supported");
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("an option"));
        assert_eq!(socket.tcp_keepalive_time().expect("an option"), Duration::from_secs(10));
        assert_eq!(socket.tcp_keepalive_interval().expect("an option"), Duration::from_secs(3));
        assert_eq!(socket.tcp_keepalive_retries().expect("an option"), 3);
        assert_eq!(socket.tcp_user_timeout().expect("an option"), Some(Duration::from_secs(5)));
    }
}
