//! Byte streams to a server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::first::{ADDRESS_HEAD_START, first};

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// Opens streams to one server.
#[async_trait]
pub trait Connect: Send + Sync + 'static {
    /// Opens a new stream. The caller applies a timeout.
    async fn connect(&self) -> io::Result<Box<dyn Stream>>;
}

/// Connects over TCP, without Nagle's algorithm. The system resolves the host name for each connection. If an address
/// does not respond, the next one is tried as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Host name or IP address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Connects over TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    tcp: Tcp,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

/// Connects to the Unix socket at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unix(pub PathBuf);

impl Tcp {
    /// Resolves the host name. A host may have several addresses.
    pub async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(lookup_host((self.host.as_str(), self.port)).await?.collect())
    }

    async fn open(&self) -> io::Result<TcpStream> {
        let opened = first(ADDRESS_HEAD_START, self.addresses().await?, TcpStream::connect, |_| false).await;
        let stream = opened.unwrap_or_else(|| Err(io::Error::other("the host name has no address")))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Tls {
    /// Connects to `tcp` and verifies that the certificate is valid for its host.
    ///
    /// Errors: the host is neither a valid DNS name nor an IP address.
    pub fn new(tcp: Tcp, config: ClientConfig) -> Result<Self, InvalidDnsNameError> {
        let name = ServerName::try_from(tcp.host.clone())?;
        Ok(Self { tcp, name, config: Arc::new(config) })
    }
}

#[async_trait]
impl Connect for Tcp {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.open().await?))
    }
}

#[async_trait]
impl Connect for Tls {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        Ok(Box::new(connector.connect(self.name.clone(), self.tcp.open().await?).await?))
    }
}

#[async_trait]
impl Connect for Unix {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        #[cfg(unix)]
        return Ok(Box::new(UnixStream::connect(&self.0).await?));
        #[cfg(not(unix))]
        Err(io::ErrorKind::Unsupported.into())
    }
}
